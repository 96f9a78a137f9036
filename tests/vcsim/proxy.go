// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/ioutil"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// rule changes the next Times requests of Method whose text contains Contains. Action:
//
//	drop        close the connection without an answer; After: only after the request was carried out
//	expire      the session of the request is no longer valid
//	fault       answer with Fault and Message
//	task_fault  answer with a task that fails with Fault and Message
//	delay       the task runs for Milliseconds, with progress
type rule struct {
	Method       string `json:"method"`
	Contains     string `json:"contains"`
	Action       string `json:"action"`
	Times        int    `json:"times"`
	After        bool   `json:"after"`
	Fault        string `json:"fault"`
	Message      string `json:"message"`
	Milliseconds int    `json:"milliseconds"`
}

// proxy is in front of the simulator: it counts requests, applies rules, and does what the simulator does not.
type proxy struct {
	next     http.Handler
	mu       sync.Mutex
	creating sync.Mutex
	requests map[string]int
	sessions map[string]bool // by cookie: true after its login, false after its logout
	expired  map[string]bool
	rules    []*rule
	dropped  map[string]*dropped // what the simulator's types lack, by virtual machine
	groups   map[string]int      // device groups that the hosts offer, with their number of devices
}

func newProxy(next http.Handler, groups map[string]int) *proxy {
	return &proxy{
		next: next, requests: map[string]int{}, sessions: map[string]bool{}, expired: map[string]bool{},
		dropped: map[string]*dropped{}, groups: groups,
	}
}

var (
	methodOf  = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)
	thisOf    = regexp.MustCompile(`<_this[^>]*>([^<]*)</_this>`)
	versionOf = regexp.MustCompile(`<version[^>]*>([^<]*)</version>`)
	resultOf  = regexp.MustCompile(`<returnval type="Task">([^<]*)</returnval>`)
	handshake = map[string]bool{"RetrieveServiceContent": true, "Login": true}
)

// ServeHTTP answers /control for tests, and passes everything else to the simulator.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/control" {
		p.control(w, r)
		return
	}
	body, err := ioutil.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = ioutil.NopCloser(bytes.NewReader(body))
	match := methodOf.FindSubmatch(body)
	if match == nil {
		p.next.ServeHTTP(w, r)
		return
	}
	method, text := string(match[1]), string(body)
	active := p.count(method, text)
	cookie := ""
	if found, err := r.Cookie("vmware_soap_session"); err == nil {
		cookie = strings.Trim(found.Value, `"`)
	}
	if active != nil && active.Action == "expire" {
		p.mu.Lock()
		p.expired[cookie] = true
		p.mu.Unlock()
	}
	p.mu.Lock()
	expired := p.expired[cookie]
	p.mu.Unlock()
	switch {
	case !handshake[method] && (expired || cookie == ""):
		answer(w, http.StatusInternalServerError, fault("NotAuthenticated", "The session is not authenticated."))
	case active != nil && active.Action == "drop" && !active.After:
		drop(w)
	case active != nil && active.Action == "fault":
		answer(w, http.StatusInternalServerError, fault(active.Fault, active.Message))
	case active != nil && active.Action == "task_fault":
		respond(w, method, failing(reference(text), method, active.Fault, active.Message))
	default:
		recorder := httptest.NewRecorder()
		p.serve(recorder, r, method, text)
		p.track(method, cookie, recorder)
		if active != nil && active.Action == "delay" {
			prolong(recorder.Body.String(), time.Duration(active.Milliseconds)*time.Millisecond)
		}
		if active != nil && active.Action == "drop" {
			drop(w)
			return
		}
		for key, values := range recorder.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(p.amend(method, recorder.Body.Bytes()))
	}
}

// count records the request and returns the rule that applies to it.
func (p *proxy) count(method, text string) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[method]++
	for _, each := range p.rules {
		if each.Times > 0 && each.Method == method && strings.Contains(text, each.Contains) {
			each.Times--
			return each
		}
	}
	return nil
}

// track records which sessions are open.
func (p *proxy) track(method, cookie string, answered *httptest.ResponseRecorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if method == "Login" {
		for _, set := range answered.Result().Cookies() {
			p.sessions[set.Value] = true
		}
	}
	if method == "Logout" {
		p.sessions[cookie] = false
	}
}

// control serves the tests: POST adds a rule, GET returns the requests so far and the number of open sessions, DELETE
// removes the rules and forgets the requests.
func (p *proxy) control(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		added := &rule{Times: 1}
		if err := json.NewDecoder(r.Body).Decode(added); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.rules = append(p.rules, added)
	case http.MethodDelete:
		p.requests, p.rules = map[string]int{}, nil
	default:
		open := 0
		for cookie, is := range p.sessions {
			if is && !p.expired[cookie] {
				open++
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]interface{}{"requests": p.requests, "sessions": open})
	}
}

// serve answers the requests that the simulator lacks, and passes it all others.
func (p *proxy) serve(w *httptest.ResponseRecorder, r *http.Request, method, text string) {
	this := reference(text)
	switch method {
	case "RebootHost_Task":
		respond(w, method, reboot(this))
	case "EnterMaintenanceMode_Task":
		if of, ok := simulator.Map.Get(this).(*simulator.HostSystem); ok {
			for _, vm := range virtualMachines(of) {
				if running(vm) {
					respond(w, method, failing(this, method, "Timedout", "Operation timed out: "+vm.Name+" is running."))
					return
				}
			}
		}
		p.next.ServeHTTP(w, r)
	case "CreateVM_Task":
		p.creating.Lock()
		defer p.creating.Unlock()
		spec := parse(text)
		if nameTaken(spec.Name) {
			respond(w, method, failing(this, method, "DuplicateName", "The name '"+spec.Name+"' already exists."))
			return
		}
		p.next.ServeHTTP(w, r)
		if task := taskOf(w.Body.String()); task != nil && task.Info.Result != nil {
			p.settle(task.Info.Result.(types.ManagedObjectReference), spec)
		}
	case "ReconfigVM_Task":
		spec := parse(text)
		vm := simulator.Map.Get(this).(*simulator.VirtualMachine)
		if running(vm) && spec.needsPowerOff() {
			message := "The attempted operation cannot be performed in the current state (Powered on)."
			respond(w, method, failing(this, method, "InvalidPowerState", message))
			return
		}
		p.next.ServeHTTP(w, r)
		if task := taskOf(w.Body.String()); task != nil && task.Info.Error == nil {
			p.settle(this, spec)
		}
	case "UpgradeVM_Task":
		// The simulator knows only one version, and would set that.
		respond(w, method, upgrade(this, text))
	case "PowerOnVM_Task":
		vm := simulator.Map.Get(this).(*simulator.VirtualMachine)
		if why := cannotStart(vm); why != "" {
			respond(w, method, failing(this, method, "GenericVmConfigFault", why))
			return
		}
		p.next.ServeHTTP(w, r)
		simulator.Map.WithLock(vm, func() { numberSlots(vm) })
	case "Fetch":
		// The simulator panics if a property has no value; vCenter answers without one.
		defer func() {
			if recover() != nil {
				answer(w, http.StatusOK, `<FetchResponse xmlns="urn:vim25"></FetchResponse>`)
			}
		}()
		p.next.ServeHTTP(w, r)
	default:
		p.next.ServeHTTP(w, r)
	}
}

func nameTaken(name string) bool {
	for _, entity := range simulator.Map.All("VirtualMachine") {
		if entity.Entity().Name == name {
			return true
		}
	}
	return false
}

// cannotStart returns why vCenter would refuse to power on a virtual machine, or "" if it would not.
func cannotStart(vm *simulator.VirtualMachine) string {
	on := simulator.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem)
	active := map[string]bool{}
	for _, info := range on.Config.PciPassthruInfo {
		base := info.GetHostPciPassthruInfo()
		active[base.Id] = base.PassthruActive
	}
	for _, id := range held(vm) {
		if strings.Contains(id, ":") && !active[id] && !isFunction(on, id) {
			return "PCI passthrough device id " + id + " is not enabled for passthrough."
		}
		if usedByRunning(on, id) {
			return "Device " + id + " is already in use."
		}
	}
	return ""
}

func isFunction(on *simulator.HostSystem, id string) bool {
	for _, each := range systems[on.Self].described.Devices {
		for _, function := range append(append([]device{}, each.VFs...), each.Later...) {
			if function.ID == id {
				return true
			}
		}
	}
	return false
}

func upgrade(of types.ManagedObjectReference, text string) types.ManagedObjectReference {
	vm := simulator.Map.Get(of).(*simulator.VirtualMachine)
	return simulator.CreateTask(vm, "upgradeVm", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		wanted := versionOf.FindStringSubmatch(text)
		if running(vm) || wanted == nil {
			return nil, &types.InvalidState{}
		}
		vm.Config.Version = wanted[1]
		return nil, nil
	}).Run()
}

func reboot(of types.ManagedObjectReference) types.ManagedObjectReference {
	on := simulator.Map.Get(of).(*simulator.HostSystem)
	return simulator.CreateTask(on, "rebootHost", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		if !on.Runtime.InMaintenanceMode {
			return nil, &types.InvalidState{}
		}
		systems[of].activate("")
		now := time.Now()
		on.Runtime.BootTime, on.Summary.Runtime.BootTime = &now, &now
		return nil, nil
	}).Run()
}

// failing returns a task that has failed with the named fault.
func failing(of types.ManagedObjectReference, method, name, message string) types.ManagedObjectReference {
	var made types.BaseMethodFault = &types.SystemError{}
	if kind, ok := types.TypeFunc()(name); ok {
		if found, ok := reflect.New(kind).Interface().(types.BaseMethodFault); ok {
			made = found
		}
	}
	if duplicate, ok := made.(*types.DuplicateName); ok {
		// A reference needs a type to be valid.
		duplicate.Object = of
	}
	task := simulator.CreateTask(of, strings.TrimSuffix(method, "_Task"), func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		return nil, made
	})
	ref := task.Run()
	task.Info.Error.LocalizedMessage = message
	return ref
}

// prolong makes the task of a response appear to run for some time.
func prolong(response string, during time.Duration) {
	task := taskOf(response)
	if task == nil {
		return
	}
	done := task.Info
	set := func(info types.TaskInfo) { simulator.Map.WithLock(task, func() { task.Info = info }) }
	for step := int32(1); step < 4; step++ {
		info := done
		info.State, info.Progress, info.Result, info.Error, info.CompleteTime = types.TaskInfoStateRunning, 25*step, nil, nil, nil
		time.AfterFunc(during*time.Duration(step-1)/3, func() { set(info) })
		if step == 1 {
			set(info)
		}
	}
	time.AfterFunc(during, func() { set(done) })
}

func taskOf(response string) *simulator.Task {
	match := resultOf.FindStringSubmatch(response)
	if match == nil {
		return nil
	}
	task, _ := simulator.Map.Get(types.ManagedObjectReference{Type: "Task", Value: match[1]}).(*simulator.Task)
	return task
}

// reference returns the object to which a request is made.
func reference(text string) types.ManagedObjectReference {
	match := thisOf.FindStringSubmatch(text)
	if match == nil {
		return types.ManagedObjectReference{}
	}
	for _, kind := range []string{"VirtualMachine", "HostSystem", "Folder"} {
		ref := types.ManagedObjectReference{Type: kind, Value: match[1]}
		if simulator.Map.Get(ref) != nil {
			return ref
		}
	}
	return types.ManagedObjectReference{Value: match[1]}
}

func drop(w http.ResponseWriter) {
	if hijacker, ok := w.(http.Hijacker); ok {
		if connection, _, err := hijacker.Hijack(); err == nil {
			_ = connection.Close()
		}
	}
}

const envelope = `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>%s</soapenv:Body></soapenv:Envelope>`

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, envelope, body)
}

func respond(w http.ResponseWriter, method string, task types.ManagedObjectReference) {
	answer(w, http.StatusOK, fmt.Sprintf(
		`<%sResponse xmlns="urn:vim25"><returnval type="Task">%s</returnval></%sResponse>`, method, task.Value, method))
}

func fault(name, message string) string {
	return fmt.Sprintf(`<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>%s</faultstring>`+
		`<detail><%sFault xmlns="urn:vim25" xsi:type="%s"></%sFault></detail></soapenv:Fault>`, message, name, name, name)
}
