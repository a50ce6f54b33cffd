package docker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// self names this process so that no later one has the same name: the process ID
// with the time of its start.
func self() (string, error) { return owner(fmt.Sprint(os.Getpid())) }

func owner(pid string) (string, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return "", fmt.Errorf("when did process %s start: %w", pid, err)
	}
	// The command in parentheses may hold anything; the start time is the 22nd
	// field, the 20th after it. See proc(5).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("when did process %s start: /proc has only %d fields", pid, len(fields))
	}
	return pid + "-" + fields[19], nil
}

// alive reports whether the process that self named so is there.
func alive(name string) bool {
	pid, _, ok := strings.Cut(name, "-")
	if !ok || pid == "" || strings.Trim(pid, "0123456789") != "" {
		return false
	}
	now, err := owner(pid)
	return err == nil && now == name
}
