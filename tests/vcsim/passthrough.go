// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// passthroughSystem is the HostPciPassthruSystem of one host.
type passthroughSystem struct {
	mo.HostPciPassthruSystem

	host      *simulator.HostSystem
	described host
}

// systems are the passthrough systems of all hosts.
var systems = map[types.ManagedObjectReference]*passthroughSystem{}

func newPassthroughSystem(of *simulator.HostSystem, described host) *passthroughSystem {
	system := &passthroughSystem{host: of, described: described}
	system.Self = types.ManagedObjectReference{Type: "HostPciPassthruSystem", Value: "pciPassthruSystem-" + of.Self.Value}
	systems[of.Self] = system
	return system
}

// UpdatePassthruConfig checks the whole request before it changes anything, as vSphere's documentation says.
func (s *passthroughSystem) UpdatePassthruConfig(req *types.UpdatePassthruConfig) soap.HasFault {
	body := new(methods.UpdatePassthruConfigBody)
	known := map[string]types.BaseHostPciPassthruInfo{}
	for _, info := range s.host.Config.PciPassthruInfo {
		known[info.GetHostPciPassthruInfo().Id] = info
	}
	for _, config := range req.Config {
		wanted := config.GetHostPciPassthruConfig()
		info := known[wanted.Id]
		if info == nil || (wanted.PassthruEnabled && !info.GetHostPciPassthruInfo().PassthruCapable) {
			body.Fault_ = simulator.Fault("device "+wanted.Id+" is not capable of passthrough", &types.HostConfigFault{})
			return body
		}
		if sriov, ok := config.(*types.HostSriovConfig); ok {
			physical, ok := info.(*types.HostSriovInfo)
			if !ok || sriov.NumVirtualFunction > physical.MaxVirtualFunctionSupported {
				body.Fault_ = simulator.Fault("too many virtual functions for "+wanted.Id, &types.HostConfigFault{})
				return body
			}
		}
		now := wanted.ApplyNow != nil && *wanted.ApplyNow && s.described.ApplyNow
		if now && !wanted.PassthruEnabled && usedByRunning(s.host, wanted.Id) {
			body.Fault_ = simulator.Fault("device "+wanted.Id+" is in use", &types.ResourceInUse{})
			return body
		}
	}
	for _, config := range req.Config {
		wanted := config.GetHostPciPassthruConfig()
		now := wanted.ApplyNow != nil && *wanted.ApplyNow && s.described.ApplyNow
		info := known[wanted.Id].GetHostPciPassthruInfo()
		info.PassthruEnabled = wanted.PassthruEnabled
		if sriov, ok := config.(*types.HostSriovConfig); ok {
			physical := known[wanted.Id].(*types.HostSriovInfo)
			physical.SriovEnabled = sriov.SriovEnabled
			physical.NumVirtualFunctionRequested = sriov.NumVirtualFunction
		}
		if now {
			s.activate(wanted.Id)
		}
	}
	body.Res = new(types.UpdatePassthruConfigResponse)
	return body
}

// activate applies the requested state of one device ("" for all) to the host: by applyNow, or at a reboot.
func (s *passthroughSystem) activate(only string) {
	for _, each := range s.described.Devices {
		for at := range s.host.Config.PciPassthruInfo {
			info := s.host.Config.PciPassthruInfo[at]
			base := info.GetHostPciPassthruInfo()
			if base.Id != each.ID || (only != "" && only != each.ID) {
				continue
			}
			base.PassthruActive = base.PassthruEnabled
			if physical, ok := info.(*types.HostSriovInfo); ok {
				count := int32(0)
				if physical.SriovEnabled {
					count = physical.NumVirtualFunctionRequested
				}
				physical.SriovActive, physical.NumVirtualFunction = count > 0, count
				s.functions(each, int(count))
			}
			break
		}
	}
}

// functions gives a physical function the requested number of virtual functions.
func (s *passthroughSystem) functions(physical device, count int) {
	every := append(append([]device{}, physical.VFs...), physical.Later...)
	gone := map[string]bool{}
	for _, each := range every {
		gone[each.ID] = true
	}
	var devices []types.HostPciDevice
	for _, each := range s.host.Hardware.PciDevice {
		if !gone[each.Id] {
			devices = append(devices, each)
		}
	}
	var infos []types.BaseHostPciPassthruInfo
	for _, each := range s.host.Config.PciPassthruInfo {
		if !gone[each.GetHostPciPassthruInfo().Id] {
			infos = append(infos, each)
		}
	}
	s.host.Hardware.PciDevice, s.host.Config.PciPassthruInfo = devices, infos
	for at := 0; at < count && at < len(every); at++ {
		plug(s.host, every[at])
	}
}

// held returns the addresses that a virtual machine's devices name.
func held(vm *simulator.VirtualMachine) []string {
	var found []string
	for _, each := range vm.Config.Hardware.Device {
		base := each.GetVirtualDevice()
		switch backing := base.Backing.(type) {
		case *types.VirtualPCIPassthroughDeviceBackingInfo:
			found = append(found, backing.Id)
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			if backing.AssignedId != "" {
				found = append(found, backing.AssignedId)
			}
		}
		card, ok := each.(*VirtualSriovEthernetCard)
		if ok && card.SriovBacking != nil && card.SriovBacking.VirtualFunctionBacking != nil {
			found = append(found, card.SriovBacking.VirtualFunctionBacking.Id)
		}
	}
	return found
}

func virtualMachines(of *simulator.HostSystem) []*simulator.VirtualMachine {
	var found []*simulator.VirtualMachine
	for _, ref := range of.Vm {
		if vm, ok := simulator.Map.Get(ref).(*simulator.VirtualMachine); ok {
			found = append(found, vm)
		}
	}
	return found
}

func running(vm *simulator.VirtualMachine) bool {
	return vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
}

func usedByRunning(on *simulator.HostSystem, id string) bool {
	for _, vm := range virtualMachines(on) {
		if running(vm) && strings.Contains(" "+strings.Join(held(vm), " ")+" ", " "+id+" ") {
			return true
		}
	}
	return false
}

// configBrowser reports which virtual function belongs to which NIC, which no other part of the API does.
type configBrowser struct {
	*simulator.EnvironmentBrowser

	described map[types.ManagedObjectReference]host
}

// QueryConfigTarget adds the SR-IOV functions of the hosts.
func (b *configBrowser) QueryConfigTarget(ctx *simulator.Context, req *types.QueryConfigTarget) soap.HasFault {
	answer := b.EnvironmentBrowser.QueryConfigTarget(ctx, req)
	body, ok := answer.(*methods.QueryConfigTargetBody)
	if !ok || req.Host == nil {
		return answer
	}
	system := systems[*req.Host]
	there := map[string]bool{}
	for _, each := range system.host.Hardware.PciDevice {
		there[each.Id] = true
	}
	for _, physical := range system.described.Devices {
		for _, function := range append(append([]device{}, physical.VFs...), physical.Later...) {
			if there[function.ID] {
				body.Res.Returnval.Sriov = append(body.Res.Returnval.Sriov, types.VirtualMachineSriovInfo{
					VirtualMachinePciPassthroughInfo: types.VirtualMachinePciPassthroughInfo{
						VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: function.ID},
						PciDevice:                function.pci(), SystemId: systemID(system.host),
					},
					VirtualFunction: true, Pnic: physical.Pnic,
				})
			}
		}
	}
	for _, device := range system.host.Hardware.PciDevice {
		body.Res.Returnval.PciPassthrough = append(body.Res.Returnval.PciPassthrough, &types.VirtualMachinePciPassthroughInfo{
			VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: device.Id},
			PciDevice:                device, SystemId: systemID(system.host),
		})
	}
	return body
}

func systemID(of *simulator.HostSystem) string { return of.Hardware.SystemInfo.Uuid }
