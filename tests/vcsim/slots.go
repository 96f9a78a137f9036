// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

package main

import (
	"fmt"
	"sort"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// The bridges of a virtual machine, as in VMware KB 2047927: pciBridge4 and up at devices 15 and up of bus 0, with eight
// functions each. The bridge that ESXi uses for a kind of device is not documented: here DirectPath devices are below
// pciBridge4 and 6, network cards below 5 and 7.
const (
	firstBridge, bridges = 4, 4
	firstSlot            = 21
	functions            = 8
	functionShift        = 10
	bridgeShift          = 5
)

// numberSlots assigns slot numbers to the bridges and devices of a virtual machine, as ESXi does at a start; a device
// that has a number keeps it.
func numberSlots(vm *simulator.VirtualMachine) {
	has := map[string]bool{}
	for _, each := range vm.Config.ExtraConfig {
		has[each.GetOptionValue().Key] = true
	}
	add := func(name string, slot int) {
		if key := name + ".pciSlotNumber"; !has[key] {
			vm.Config.ExtraConfig = append(vm.Config.ExtraConfig, &types.OptionValue{Key: key, Value: fmt.Sprint(slot)})
		}
	}
	for at := 0; at < bridges; at++ {
		add(fmt.Sprintf("pciBridge%d", firstBridge+at), firstSlot+at)
	}
	devices := append([]types.BaseVirtualDevice{}, vm.Config.Hardware.Device...)
	sort.Slice(devices, func(a, b int) bool { return devices[a].GetVirtualDevice().Key < devices[b].GetVirtualDevice().Key })
	passed, cards := 0, 0
	for _, each := range devices {
		switch each.(type) {
		case *VirtualPCIPassthrough, *types.VirtualPCIPassthrough:
			add(fmt.Sprintf("pciPassthru%d", passed), slotBelow(firstBridge, passed))
			passed++
		case types.BaseVirtualEthernetCard:
			add(fmt.Sprintf("ethernet%d", cards), slotBelow(firstBridge+1, cards))
			cards++
		}
	}
}

// slotBelow returns the slot number of device 0 below a function of a bridge, or of the next bridge but one if the
// functions of the bridge are used up.
func slotBelow(bridge, number int) int {
	return number%functions<<functionShift | (bridge+2*(number/functions)+1)<<bridgeShift
}
