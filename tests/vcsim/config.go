// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// VirtualPCIPassthrough is the type of API 8.0.0.1, whose additions the simulator's types lack.
type VirtualPCIPassthrough struct {
	types.VirtualPCIPassthrough

	NumaNode  *int32     `xml:"numaNode"`
	GroupInfo *groupInfo `xml:"deviceGroupInfo"`
}

// VirtualSriovEthernetCard is the type of API 8.0.0.1.
type VirtualSriovEthernetCard struct {
	types.VirtualSriovEthernetCard

	NumaNode *int32 `xml:"numaNode"`
}

type groupInfo struct {
	Key      int32 `xml:"groupInstanceKey"`
	Sequence int32 `xml:"sequenceId"`
}

func init() {
	types.Add("VirtualPCIPassthrough", reflect.TypeOf((*VirtualPCIPassthrough)(nil)).Elem())
	types.Add("VirtualSriovEthernetCard", reflect.TypeOf((*VirtualSriovEthernetCard)(nil)).Elem())
}

// request contains the parts of a request's ConfigSpec that this program needs.
type request struct {
	Name    string   `xml:"name"`
	Numa    *numa    `xml:"virtualNuma"`
	Threads *int32   `xml:"simultaneousThreads"`
	Groups  *raw     `xml:"deviceGroups"`
	Devices []raw    `xml:"deviceChange"`
	CPUs    *int32   `xml:"numCPUs"`
	Memory  *int64   `xml:"memoryMB"`
	Flags   *flags   `xml:"flags"`
	Other   []option `xml:"extraConfig"`
}

type flags struct {
	IOMMU *bool `xml:"vvtdEnabled"`
}

type numa struct {
	Cores *int32 `xml:"coresPerNumaNode"`
}

type option struct {
	Key string `xml:"key"`
}

type raw struct {
	Text string `xml:",innerxml"`
}

// needsPowerOff returns whether a request changes hardware, which a running virtual machine does not allow.
func (r *request) needsPowerOff() bool {
	return r.Numa != nil || r.Threads != nil || r.Groups != nil || len(r.Devices) > 0 || r.CPUs != nil || r.Memory != nil
}

func parse(text string) *request {
	var found struct {
		Body struct {
			Create struct {
				Spec request `xml:"config"`
			} `xml:"CreateVM_Task"`
			Reconfigure struct {
				Spec request `xml:"spec"`
			} `xml:"ReconfigVM_Task"`
		} `xml:"Body"`
	}
	if err := xml.Unmarshal([]byte(text), &found); err != nil {
		return &request{}
	}
	if found.Body.Create.Spec.Name != "" {
		return &found.Body.Create.Spec
	}
	return &found.Body.Reconfigure.Spec
}

// dropped holds the settings of one virtual machine that the simulator does not keep.
type dropped struct {
	cores, threads *int32
	groups         string
	iommu          *bool
}

// settle does what vCenter does after a change, but the simulator does not.
func (p *proxy) settle(ref types.ManagedObjectReference, spec *request) {
	vm, ok := simulator.Map.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return
	}
	simulator.Map.WithLock(vm, func() { vm.Config.ExtraConfig = lastWins(vm.Config.ExtraConfig) })
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.dropped[ref.Value]
	if kept == nil {
		kept = &dropped{}
		p.dropped[ref.Value] = kept
	}
	if spec.Numa != nil {
		kept.cores = spec.Numa.Cores
	}
	if spec.Threads != nil {
		kept.threads = spec.Threads
	}
	if spec.Groups != nil {
		kept.groups = spec.Groups.Text
	}
	if spec.Flags != nil && spec.Flags.IOMMU != nil {
		kept.iommu = spec.Flags.IOMMU
	}
}

// lastWins keeps the last value of each key; an empty value removes the key (VirtualMachineConfigSpec.extraConfig).
func lastWins(options []types.BaseOptionValue) []types.BaseOptionValue {
	last := map[string]int{}
	for at, each := range options {
		last[each.GetOptionValue().Key] = at
	}
	var kept []types.BaseOptionValue
	for at, each := range options {
		value := each.GetOptionValue()
		if last[value.Key] == at && value.Value != "" {
			kept = append(kept, each)
		}
	}
	return kept
}

var (
	objectOf   = regexp.MustCompile(`<obj type="VirtualMachine">([^<]*)</obj>`)
	configOf   = regexp.MustCompile(`<val [^>]*"VirtualMachineConfigInfo"[^>]*>`)
	hardwareOf = regexp.MustCompile(`<hardware>`)
)

// amend adds the settings to a response that the simulator has dropped of its virtual machines.
func (p *proxy) amend(method string, response []byte) []byte {
	if method == "QueryConfigTarget" {
		return bytes.Replace(response, []byte("</returnval>"), []byte(p.offered()+"</returnval>"), 1)
	}
	if !strings.HasPrefix(method, "RetrieveProperties") && method != "ContinueRetrievePropertiesEx" {
		return response
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	places := objectOf.FindAllSubmatchIndex(response, -1)
	var out bytes.Buffer
	at := 0
	for number, place := range places {
		end := len(response)
		if number+1 < len(places) {
			end = places[number+1][0]
		}
		out.Write(response[at:place[0]])
		part := response[place[0]:end]
		if kept := p.dropped[string(response[place[2]:place[3]])]; kept != nil {
			part = insert(part, configOf, kept.config())
			part = insert(part, hardwareOf, kept.hardware())
		}
		out.Write(part)
		at = end
	}
	out.Write(response[at:])
	return out.Bytes()
}

// offered returns the device groups of a host's ConfigTarget, which the simulator's types lack.
func (p *proxy) offered() string {
	const component = `<componentDeviceInfo><type>pciPassthru</type><vendorName>simulated</vendorName>` +
		`<deviceName>GPU</deviceName><isConfigurable>false</isConfigurable><device xsi:type="VirtualPCIPassthrough">` +
		`<key>0</key><backing xsi:type="VirtualPCIPassthroughDynamicBackingInfo"><deviceName></deviceName>` +
		`<customLabel>nvlink</customLabel></backing></device></componentDeviceInfo>`
	text := ""
	for name, count := range p.groups {
		text += "<vendorDeviceGroupInfo><deviceGroupName>" + name + "</deviceGroupName>" +
			strings.Repeat(component, count) + "</vendorDeviceGroupInfo>"
	}
	return text
}

func insert(text []byte, after *regexp.Regexp, more string) []byte {
	place := after.FindIndex(text)
	if place == nil || more == "" {
		return text
	}
	return append(append(append([]byte{}, text[:place[1]]...), more...), text[place[1]:]...)
}

func (d *dropped) config() string {
	text := ""
	if d.cores != nil {
		text += fmt.Sprintf(`<numaInfo><coresPerNumaNode>%d</coresPerNumaNode></numaInfo>`, *d.cores)
	}
	if d.groups != "" {
		text += "<deviceGroups>" + d.groups + "</deviceGroups>"
	}
	return text
}

func (d *dropped) hardware() string {
	if d.threads == nil {
		return ""
	}
	return fmt.Sprintf(`<simultaneousThreads>%d</simultaneousThreads>`, *d.threads)
}
