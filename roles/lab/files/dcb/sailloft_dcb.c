// SPDX-License-Identifier: GPL-3.0-or-later
/* Copyright: the Sailloft maintainers */
/* A network interface that drops all packets and remembers its DCB settings, as a RoCE NIC's driver would.
 *
 * With "netdev" no new interface is made: these settings are added to that interface, whose driver has no DCB.
 *
 * The kernel keeps the DSCP mappings itself. Like mlx5, the driver has one ingress buffer at first, and refuses a lossless
 * priority whose buffer has no room. "no_pfc" is a mask of priorities that it cannot make lossless.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/dcbnl.h>

static unsigned int no_pfc;
module_param(no_pfc, uint, 0444);
static char *netdev;
module_param(netdev, charp, 0444);

struct state {
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct dcbnl_buffer buffer;
	u8 dcbx;
};

static struct net_device *device;
static struct state state;

static int getets(struct net_device *dev, struct ieee_ets *ets)
{
	*ets = state.ets;
	return 0;
}

static int setets(struct net_device *dev, struct ieee_ets *ets)
{
	int sum = 0, tc;

	for (tc = 0; tc < IEEE_8021QAZ_MAX_TCS; tc++)
		sum += ets->tc_tsa[tc] == IEEE_8021QAZ_TSA_ETS ? ets->tc_tx_bw[tc] : 0;
	if (sum != 0 && sum != 100)
		return -EINVAL;
	state.ets = *ets;
	state.ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	return 0;
}

static bool has_room(const struct dcbnl_buffer *buffer, u8 lossless)
{
	int priority;

	for (priority = 0; priority < IEEE_8021QAZ_MAX_TCS; priority++)
		if (lossless & BIT(priority) && !buffer->buffer_size[buffer->prio2buffer[priority]])
			return false;
	return true;
}

static int getpfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	*pfc = state.pfc;
	return 0;
}

static int setpfc(struct net_device *dev, struct ieee_pfc *pfc)
{
	if (pfc->pfc_en & no_pfc)
		return -EINVAL;
	if (!has_room(&state.buffer, pfc->pfc_en))
		return -ENOMEM;
	state.pfc = *pfc;
	state.pfc.pfc_cap = IEEE_8021QAZ_MAX_TCS;
	return 0;
}

static int getbuffer(struct net_device *dev, struct dcbnl_buffer *buffer)
{
	*buffer = state.buffer;
	return 0;
}

static int setbuffer(struct net_device *dev, struct dcbnl_buffer *buffer)
{
	u32 used = 0;
	int at;

	for (at = 0; at < DCBX_MAX_BUFFERS; at++)
		used += buffer->buffer_size[at];
	if (used > state.buffer.total_size)
		return -EINVAL;
	if (!has_room(buffer, state.pfc.pfc_en))
		return -ENOMEM;
	memcpy(state.buffer.prio2buffer, buffer->prio2buffer, sizeof(buffer->prio2buffer));
	memcpy(state.buffer.buffer_size, buffer->buffer_size, sizeof(buffer->buffer_size));
	return 0;
}

static u8 getdcbx(struct net_device *dev)
{
	return state.dcbx;
}

static u8 setdcbx(struct net_device *dev, u8 mode)
{
	state.dcbx = mode;
	return 0;
}

static const struct dcbnl_rtnl_ops dcb = {
	.ieee_getets = getets,
	.ieee_setets = setets,
	.ieee_getpfc = getpfc,
	.ieee_setpfc = setpfc,
	.dcbnl_getbuffer = getbuffer,
	.dcbnl_setbuffer = setbuffer,
	.getdcbx = getdcbx,
	.setdcbx = setdcbx,
};

static netdev_tx_t drop(struct sk_buff *packet, struct net_device *dev)
{
	dev_kfree_skb(packet);
	return NETDEV_TX_OK;
}

static const struct net_device_ops operations = { .ndo_start_xmit = drop };

static int __init lend(void)
{
	device = dev_get_by_name(&init_net, netdev);
	if (!device)
		return -ENODEV;
	if (device->dcbnl_ops) {
		dev_put(device);
		return -EBUSY;
	}
	rtnl_lock();
	device->dcbnl_ops = &dcb;
	rtnl_unlock();
	return 0;
}

static int __init start(void)
{
	int err;

	state.ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	state.pfc.pfc_cap = IEEE_8021QAZ_MAX_TCS;
	state.buffer.total_size = 1 << 20;
	state.buffer.buffer_size[0] = 1 << 18;
	/* The firmware runs DCBX, and the host has to take it over. */
	state.dcbx = DCB_CAP_DCBX_LLD_MANAGED | DCB_CAP_DCBX_VER_IEEE;
	if (netdev)
		return lend();

	device = alloc_etherdev(0);
	if (!device)
		return -ENOMEM;
	strscpy(device->name, "dcb0", IFNAMSIZ);
	eth_hw_addr_random(device);
	device->netdev_ops = &operations;
	device->dcbnl_ops = &dcb;
	device->max_mtu = 9216;
	err = register_netdev(device);
	if (err)
		free_netdev(device);
	return err;
}

static void __exit stop(void)
{
	if (netdev) {
		rtnl_lock();
		device->dcbnl_ops = NULL;
		rtnl_unlock();
		dev_put(device);
		return;
	}
	unregister_netdev(device);
	free_netdev(device);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A network interface with DCB settings, for tests");
