"""Monitors of many devices in tensors: what `onlad.watching` defines, for all devices at once.

Each module stands beside the one that it follows: `modes` beside `onlad.mode`, `limits` beside
`onlad.limit`, `anchors` beside `onlad.anchor`, `watchers` beside `onlad.watching` and
`onlad.judge`. Only PyTorch is needed, so that they run on a GPU and, slowly, on the processor.
"""
