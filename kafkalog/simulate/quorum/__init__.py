"""A KRaft quorum in virtual time: its core over a network and disks that fail."""
