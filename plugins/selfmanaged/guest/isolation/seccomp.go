package isolation

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newNamespaces are the flags of clone and unshare that make a namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// auditArchitectures are the names of architectures in the kernel's own numbers.
var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// otherABI is set in the number of a system call of the x32 ABI, by which a filter
// for the usual numbers could be passed.
const otherABI = 0x40000000

// NamespaceFilter is a seccomp filter that keeps who has it, and all that it starts,
// from making namespaces. In a user namespace anybody is root: of mounts without a size
// limit, of raw sockets, and of a chroot from which one climbs to a hidden file system
// that all executions of a sandbox share.
func NamespaceFilter() ([]unix.SockFilter, error) {
	arch, ok := auditArchitectures[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("forbid namespaces: unknown architecture %s", runtime.GOARCH)
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equals = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		above  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		bits   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		end    = unix.BPF_RET | unix.BPF_K
		// Offsets in struct seccomp_data; of the first argument the lower half.
		number, architecture, flags = 0, 4, 16
	)
	return []unix.SockFilter{
		{Code: load, K: architecture},
		{Code: equals, K: arch, Jf: 7},
		{Code: load, K: number},
		{Code: above, K: otherABI, Jt: 5},
		// Its flags lie in memory, where no filter looks; libraries fall back on
		// clone.
		{Code: equals, K: unix.SYS_CLONE3, Jt: 4},
		{Code: equals, K: unix.SYS_CLONE, Jt: 1},
		{Code: equals, K: unix.SYS_UNSHARE, Jf: 4},
		{Code: load, K: flags},
		{Code: bits, K: newNamespaces, Jt: 1, Jf: 2},
		{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
	}, nil
}

// forbidNamespaces gives the calling thread, which must be locked, NamespaceFilter.
func forbidNamespaces() error {
	filter, err := NamespaceFilter()
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("forbid namespaces: %w", err)
	}
	return nil
}
