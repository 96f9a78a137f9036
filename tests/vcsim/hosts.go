// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"fmt"
	"sort"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// site is the JSON description of a simulated vCenter: one cluster and its hosts.
type site struct {
	APIVersion string `json:"api_version"`
	User       string `json:"user"`
	Password   string `json:"password"`
	Cluster    string `json:"cluster"`
	FreeBytes  int64  `json:"datastore_free_bytes"`
	Hosts      []host `json:"hosts"`
	// Device groups of every host, with their numbers of devices of the first capable GPU's model.
	Groups map[string]int `json:"device_groups"`
}

// host is one ESXi host. ApplyNow: passthrough changes take effect without a reboot if the caller requests that.
type host struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	CPU         string   `json:"cpu"`
	CPUVendor   string   `json:"cpu_vendor"`
	HertzOfCPU  int64    `json:"cpu_hz"`
	Cores       int16    `json:"cores"`
	MemoryBytes int64    `json:"memory_bytes"`
	ApplyNow    bool     `json:"apply_now"`
	Nodes       []node   `json:"numa_nodes"`
	Devices     []device `json:"devices"`
}

type node struct {
	ID          byte     `json:"id"`
	CPUs        []int16  `json:"cpus"`
	MemoryBytes int64    `json:"memory_bytes"`
	PCI         []string `json:"pci_ids"`
}

// device is one PCI function. MaxVFs above 0 makes it a physical function; VFs are the functions that it has, Later
// those that it gets when SR-IOV is enabled.
type device struct {
	ID          string   `json:"id"`
	ClassID     uint16   `json:"class_id"`
	VendorID    uint16   `json:"vendor_id"`
	DeviceID    uint16   `json:"device_id"`
	SubVendorID uint16   `json:"sub_vendor_id"`
	SubDeviceID uint16   `json:"sub_device_id"`
	Parent      string   `json:"parent_bridge"`
	Name        string   `json:"name"`
	Capable     bool     `json:"capable"`
	Active      bool     `json:"active"`
	Dependent   string   `json:"dependent"`
	Pnic        string   `json:"pnic"`
	MaxVFs      int32    `json:"max_vfs"`
	VFs         []device `json:"vfs"`
	Later       []device `json:"later_vfs"`
}

func (d device) pci() types.HostPciDevice {
	var domain, bus, slot, function int
	_, _ = fmt.Sscanf(d.ID, "%x:%x:%x.%x", &domain, &bus, &slot, &function)
	return types.HostPciDevice{
		Id: d.ID, ClassId: int16(d.ClassID), Bus: byte(bus), Slot: byte(slot), Function: byte(function),
		VendorId: int16(d.VendorID), DeviceId: int16(d.DeviceID), SubVendorId: int16(d.SubVendorID),
		SubDeviceId: int16(d.SubDeviceID), ParentBridge: d.Parent, DeviceName: d.Name, VendorName: "simulated",
	}
}

func (d device) passthrough() types.BaseHostPciPassthruInfo {
	info := types.HostPciPassthruInfo{
		Id: d.ID, DependentDevice: d.ID, PassthruCapable: d.Capable, PassthruEnabled: d.Active, PassthruActive: d.Active,
	}
	if d.Dependent != "" {
		info.DependentDevice = d.Dependent
	}
	if d.MaxVFs == 0 {
		return &info
	}
	count := int32(len(d.VFs))
	return &types.HostSriovInfo{
		HostPciPassthruInfo: info, SriovCapable: true, SriovEnabled: count > 0, SriovActive: count > 0,
		NumVirtualFunction: count, NumVirtualFunctionRequested: count, MaxVirtualFunctionSupported: d.MaxVFs,
	}
}

// populate gives the model's objects the names, devices and capabilities of the description.
func populate(site *site) {
	cluster := simulator.Map.Any("ClusterComputeResource").(*simulator.ClusterComputeResource)
	cluster.Name = site.Cluster
	for _, entity := range simulator.Map.All("Datastore") {
		store := entity.(*simulator.Datastore)
		store.Summary.FreeSpace, store.Summary.Capacity = site.FreeBytes, 2*site.FreeBytes
		store.Info.GetDatastoreInfo().FreeSpace = site.FreeBytes
	}
	hosts := map[types.ManagedObjectReference]host{}
	refs := append([]types.ManagedObjectReference{}, cluster.Host...)
	sort.Slice(refs, func(a, b int) bool { return number(refs[a].Value) < number(refs[b].Value) })
	for at, ref := range refs {
		described := site.Hosts[at]
		hosts[ref] = described
		furnish(simulator.Map.Get(ref).(*simulator.HostSystem), described)
	}
	browser := simulator.Map.Get(*cluster.EnvironmentBrowser).(*simulator.EnvironmentBrowser)
	simulator.Map.Put(&configBrowser{browser, hosts})
}

func number(reference string) int {
	var at int
	_, _ = fmt.Sscanf(reference, "host-%d", &at)
	return at
}

func furnish(to *simulator.HostSystem, from host) {
	to.Name, to.Summary.Config.Name = from.Name, from.Name
	product := *to.Summary.Config.Product
	product.Version, product.FullName = from.Version, "VMware ESXi "+from.Version+" (simulated)"
	to.Summary.Config.Product = &product
	to.Config.Product = product

	var threads []int16
	var numa []types.HostNumaNode
	for _, each := range from.Nodes {
		threads = append(threads, each.CPUs...)
		numa = append(numa, types.HostNumaNode{
			TypeId: each.ID, CpuID: each.CPUs, MemoryRangeLength: each.MemoryBytes, PciId: each.PCI,
		})
	}
	to.Hardware.NumaInfo = &types.HostNumaInfo{Type: "NUMA", NumNodes: int32(len(numa)), NumaNode: numa}
	to.Hardware.MemorySize = from.MemoryBytes
	to.Hardware.CpuInfo = types.HostCpuInfo{
		NumCpuPackages: int16(len(numa)), NumCpuCores: from.Cores, NumCpuThreads: int16(len(threads)), Hz: from.HertzOfCPU,
	}
	to.Hardware.CpuPkg = nil
	for _, each := range from.Nodes {
		to.Hardware.CpuPkg = append(to.Hardware.CpuPkg, types.HostCpuPackage{
			Index: int16(each.ID), Vendor: from.CPUVendor, Hz: from.HertzOfCPU, Description: from.CPU, ThreadId: each.CPUs,
		})
	}
	hardware := *to.Summary.Hardware
	hardware.MemorySize, hardware.NumCpuCores, hardware.NumCpuThreads = from.MemoryBytes, from.Cores, int16(len(threads))
	hardware.CpuModel, hardware.CpuMhz = from.CPU, int32(from.HertzOfCPU/1000000)
	to.Summary.Hardware = &hardware

	yes := true
	to.Capability = &types.HostCapability{
		MaxSupportedVcpus: 768, MaxHostSupportedVcpus: 768, LatencySensitivitySupported: &yes,
		DeviceRebindWithoutRebootSupported: &from.ApplyNow, MaintenanceModeSupported: true, RebootSupported: true,
	}
	to.Hardware.PciDevice = nil
	to.Config.PciPassthruInfo = nil
	to.Config.Network.Pnic = nil
	for _, each := range from.Devices {
		plug(to, each)
		for _, function := range each.VFs {
			plug(to, function)
		}
	}
	system := newPassthroughSystem(to, from)
	ref := simulator.Map.Put(system).Reference()
	to.ConfigManager.PciPassthruSystem = &ref
}

func plug(to *simulator.HostSystem, each device) {
	to.Hardware.PciDevice = append(to.Hardware.PciDevice, each.pci())
	to.Config.PciPassthruInfo = append(to.Config.PciPassthruInfo, each.passthrough())
	if each.Pnic != "" {
		to.Config.Network.Pnic = append(to.Config.Network.Pnic, types.PhysicalNic{
			Key: "key-vim.host.PhysicalNic-" + each.Pnic, Device: each.Pnic, Pci: each.ID, Mac: "00:00:5e:00:53:01",
		})
	}
}
