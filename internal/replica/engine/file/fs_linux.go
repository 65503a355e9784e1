package file

import "syscall"

// networkFileSystems are the kinds whose locks don't exclude, or only on one machine. FUSE is
// among them: the file system behind it is unknown.
var networkFileSystems = map[uint32]string{
	0x00006969: "NFS",
	0x0000517B: "SMB",
	0xFE534D42: "SMB2",
	0xFF534D42: "CIFS",
	0x65735546: "FUSE",
	0x00C36400: "Ceph",
	0x01021997: "9P",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x01161970: "GFS2",
	0x7461636F: "OCFS2",
	0x73757245: "Coda",
	0x0BD00BD0: "Lustre",
	0x47504653: "GPFS",
	0x786F4256: "VirtualBox shared folder",
	0xBACBACBC: "VMware shared folder",
}

// networkFileSystem names the network file system that a directory is on; empty
// for a local one.
func networkFileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "statfs: " + err.Error()
	}
	return networkFileSystems[uint32(s.Type)] //nolint:gosec // the kernel's magic numbers have 32 bits
}
