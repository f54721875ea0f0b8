// The monitor of a microcontroller in fixed point, beside the one in floats: under other names.
#pragma once

#define ONLAD_FIXED
#define onlad_monitor fixed_monitor
#define onlad_init fixed_init
#define onlad_observe fixed_observe
#define onlad_accept fixed_accept
#define onlad_pause fixed_pause
#define onlad_set_false_alarms fixed_set_false_alarms
#define onlad_set_warmup fixed_set_warmup
#define onlad_set_counter fixed_set_counter
#define onlad_dump fixed_dump
#define onlad_restore fixed_restore
#define onlad_check fixed_check
#define portable_shares fixed_shares
