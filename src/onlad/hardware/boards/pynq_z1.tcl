# Builds onlad.bit and onlad.hwh for a PYNQ-Z1 (xc7z020) around the core beside this file:
#
#     vivado -mode batch -source pynq_z1.tcl
#
# The processing system's memory and pins are set up by the board's own boot image; of the settings
# below an overlay uses the clock and the two ports.

set here [file dirname [file normalize [info script]]]
set part xc7z020clg400-1
set megahertz 100

create_project onlad [file join $here build] -part $part -force
add_files [list [file join $here onlad_core.v] [file join $here onlad_core_axis.v]]
set_property top onlad_core_axis [current_fileset]
update_compile_order -fileset sources_1

create_bd_design system
create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7:5.5 ps
set_property -dict [list \
    CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $megahertz \
    CONFIG.PCW_USE_M_AXI_GP0 1 \
    CONFIG.PCW_USE_S_AXI_HP0 1 \
    CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64 \
] [get_bd_cells ps]
apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \
    -config {make_external "FIXED_IO, DDR"} [get_bd_cells ps]

# The driver binds to a hierarchy of this name that has a DMA in it: overlay.onlad.
create_bd_cell -type hier onlad
create_bd_cell -type ip -vlnv xilinx.com:ip:axi_dma:7.1 onlad/dma
set_property -dict [list \
    CONFIG.c_include_sg 0 \
    CONFIG.c_sg_length_width 26 \
    CONFIG.c_m_axi_mm2s_data_width 64 \
    CONFIG.c_m_axis_mm2s_tdata_width 64 \
    CONFIG.c_m_axi_s2mm_data_width 32 \
    CONFIG.c_s_axis_s2mm_tdata_width 32 \
] [get_bd_cells onlad/dma]
create_bd_cell -type module -reference onlad_core_axis onlad/core
connect_bd_intf_net [get_bd_intf_pins onlad/dma/M_AXIS_MM2S] [get_bd_intf_pins onlad/core/s_axis]
connect_bd_intf_net [get_bd_intf_pins onlad/core/m_axis] [get_bd_intf_pins onlad/dma/S_AXIS_S2MM]

# Clock, reset and interconnect: one clock, that of the core.
apply_bd_automation -rule xilinx.com:bd_rule:axi4 -config {
    Master /ps/M_AXI_GP0 Slave /onlad/dma/S_AXI_LITE Clk /ps/FCLK_CLK0
} [get_bd_intf_pins onlad/dma/S_AXI_LITE]
apply_bd_automation -rule xilinx.com:bd_rule:axi4 -config {
    Master /onlad/dma/M_AXI_MM2S Slave /ps/S_AXI_HP0 Clk /ps/FCLK_CLK0
} [get_bd_intf_pins ps/S_AXI_HP0]
apply_bd_automation -rule xilinx.com:bd_rule:axi4 -config {
    Master /onlad/dma/M_AXI_S2MM Slave /ps/S_AXI_HP0 Clk /ps/FCLK_CLK0
} [get_bd_intf_pins onlad/dma/M_AXI_S2MM]
apply_bd_automation -rule xilinx.com:bd_rule:clkrst -config {
    Clk /ps/FCLK_CLK0
} [get_bd_pins onlad/core/aclk]

regenerate_bd_layout
validate_bd_design
save_bd_design
make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
update_compile_order -fileset sources_1

launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
open_run impl_1
report_utilization -file [file join $here utilization.txt]
report_timing_summary -file [file join $here timing.txt]

set runs [file join $here build onlad.runs impl_1]
file copy -force [file join $runs system_wrapper.bit] [file join $here onlad.bit]
set handoff [glob [file join $here build onlad.* sources_1 bd system hw_handoff system.hwh]]
file copy -force [lindex $handoff 0] [file join $here onlad.hwh]

set slack [get_property SLACK [lindex [get_timing_paths -delay_type max] 0]]
puts "onlad: worst slack $slack ns at $megahertz MHz; see timing.txt and utilization.txt"
if {$slack < 0} {
    error "onlad: the core does not reach $megahertz MHz here. Lower megahertz, or take fewer lanes"
}
