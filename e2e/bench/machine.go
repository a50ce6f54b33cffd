package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine says in one line what the figures are of.
func describeMachine(ctx context.Context, l lab) string {
	groups := "no cgroups"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		groups = "cgroups version 2"
	} else if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		groups = "cgroups version 1"
	}
	user := "an ordinary user"
	if os.Geteuid() == 0 {
		user = "root"
	}
	kernel := "unknown"
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	version := "no runsc"
	if l.runsc != "" {
		version = firstLine(ctx, l.runsc, "--version")
	}
	return fmt.Sprintf("%d CPUs (%s), Linux %s, %s, as %s; %s, %s, Node.js %s, %s.",
		runtime.NumCPU(), modelOfCPU(), kernel, groups, user, version,
		firstLine(ctx, python, "--version"), firstLine(ctx, node, "--version"), runtime.Version())
}

// The interpreters that sandboxes of the host's root file system use too.
var (
	python = systemProgram("python3")
	node   = systemProgram("node", "nodejs")
	bash   = systemProgram("bash")
)

func systemProgram(names ...string) string {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
	}
	return names[0]
}

// findRunsc finds the gVisor that the plugin uses, "" if there is none.
func findRunsc(b build) string {
	for _, name := range []string{"runsc", filepath.Join(b.bin, "runsc")} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return filepath.Base(name) + " (no version)"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

func modelOfCPU() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for l := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(l, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// loadAverage of the last minute: how busy the machine was with other things.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
