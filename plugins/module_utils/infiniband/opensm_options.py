# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options of opensm.conf, by whether a running opensm takes a new value when it gets the signal HUP.

They are those of opt_tbl in opensm/osm_subnet.c of opensm 3.3.24, by its column can_update; opensm 3.3.23 has two less.
opensm ignores a name that it does not know, and tells it on its standard output only.
"""

from __future__ import annotations

from collections.abc import Mapping

# A heavy sweep reads the file again: after HUP, a trap, or a change of a switch. An option that leaves the file keeps
# its value, except for those of QoS, which osm_subn_rescan_conf_files sets back first.
_READ_AGAIN = """
    accum_log_file babbling_port_policy cc_ca_cong_setting_ccti_increase cc_ca_cong_setting_ccti_min
    cc_ca_cong_setting_ccti_timer cc_ca_cong_setting_control_map cc_ca_cong_setting_port_control
    cc_ca_cong_setting_trigger_threshold cc_cct cc_sw_cong_setting_control_map cc_sw_cong_setting_credit_mask
    cc_sw_cong_setting_credit_starvation_return_delay cc_sw_cong_setting_credit_starvation_threshold
    cc_sw_cong_setting_marking_rate cc_sw_cong_setting_packet_size cc_sw_cong_setting_threshold
    cc_sw_cong_setting_victim_mask congestion_control connect_roots consolidate_ipv6_snm_req disable_multicast
    do_mesh_analysis drop_event_subscriptions enable_quirks exit_on_fatal fdr10 force_heavy_sweep
    force_link_speed force_link_speed_ext force_link_width force_log_flush fsync_high_avail_files
    head_of_queue_lifetime honor_guid2lid_file ignore_other_sm ipoib_mcgroup_creation_validation
    keep_pkey_indexes lash_start_vl leaf_head_of_queue_lifetime leaf_vl_stall_count local_phy_errors_threshold
    log_flags log_max_size log_prefix m_key m_key_lease_period m_key_lookup m_key_protection_level
    max_msg_fifo_timeout max_op_vls max_rate_enum max_smps_timeout max_wire_smps max_wire_smps2
    mcgroup_join_validation no_clients_rereg no_partition_enforcement nue_max_num_vls overrun_errors_threshold
    packet_life_time part_enforce polling_retry_number port_profile_switch_nodes port_shifting qos
    qos_ca_high_limit qos_ca_max_vls qos_ca_sl2vl qos_ca_vlarb_high qos_ca_vlarb_low qos_high_limit qos_max_vls
    qos_rtr_high_limit qos_rtr_max_vls qos_rtr_sl2vl qos_rtr_vlarb_high qos_rtr_vlarb_low qos_sl2vl
    qos_sw0_high_limit qos_sw0_max_vls qos_sw0_sl2vl qos_sw0_vlarb_high qos_sw0_vlarb_low qos_swe_high_limit
    qos_swe_max_vls qos_swe_sl2vl qos_swe_vlarb_high qos_swe_vlarb_low qos_vlarb_high qos_vlarb_low
    quasi_ftree_indexing reassign_lids sa_db_dump sa_key scatter_ports sm_assigned_guid sm_inactive sm_key
    sm_priority sm_sl sminfo_polling_timeout subnet_timeout suppress_sl2vl_mad_status_errors sweep_interval
    sweep_on_trap torus_config use_mfttop use_optimized_slvl use_original_extended_sa_rates_only vl_stall_count
"""
_AT_START = """
    allow_both_pkeys avoid_throttled_links cc_key cc_max_outstanding_mads cn_guid_file console console_port
    daemon dimn_ports_file dump_files_dir event_db_dump_file event_plugin_name event_plugin_options guid
    guid_routing_order_file guid_routing_order_no_scatter hop_weights_file ids_guid_file io_guid_file lfts_file
    lid_matrix_dump_file lmc lmc_esp0 log_file long_transaction_timeout max_reverse_hops node_name_map_name
    nue_include_switches partition_config_file per_module_logging_file perfmgr perfmgr_ignore_cas
    perfmgr_log_errors perfmgr_max_outstanding_queries perfmgr_query_cpi perfmgr_redir perfmgr_rm_nodes
    perfmgr_sweep_time_s perfmgr_xmit_wait_log perfmgr_xmit_wait_threshold port_prof_ignore_file
    port_search_ordering_file prefix_routes_file qos_policy_file root_guid_file routing_engine sa_db_file
    single_thread subnet_prefix transaction_retries transaction_timeout use_ucast_cache
"""
READ_AGAIN = frozenset(_READ_AGAIN.split())
OPTIONS = READ_AGAIN | frozenset(_AT_START.split())


def values(text: str) -> dict[str, str]:
    """Return the options in an opensm.conf: of a name that is there twice the last one, as opensm takes it."""
    lines = (line.partition("#")[0].split(None, 1) for line in text.splitlines())
    return {line[0]: (line[1] if line[1:] else "").strip() for line in lines if line}


def need_restart(running: Mapping[str, str], planned: Mapping[str, str]) -> list[str]:
    """Return the options whose planned values a running opensm takes only at its start."""
    differing = {name for name in {*running, *planned} if running.get(name) != planned.get(name)}
    return sorted(
        name for name in differing if name not in READ_AGAIN or (name not in planned and not name.startswith("qos_"))
    )
