"""tinker-cookbook and rlvr together (extra `cookbook`): imports nothing until a part is used.

`rlvr_tinker.cookbook.dataset:TaskDatasetBuilder` gives our tasks to the cookbook's loops;
`rlvr_tinker.cookbook.task:CookbookTask` gives the cookbook's environments to ours.
"""
