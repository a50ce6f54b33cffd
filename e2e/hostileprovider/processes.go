package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// logged is how much a flood of the log is, in bytes.
const logged = 1 << 30

// leave starts a child that outlives us. It may hold our outputs and every other
// descriptor, the connection to the broker among them. Its number goes into a file
// beside the plan.
func leave(session, holding bool) {
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if holding {
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			panic(err)
		}
		for _, e := range entries {
			if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
				_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0) // not closed at exec
			}
		}
	}
	if err := child.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[0]+".child", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
}

func logLines() { flood([]byte(strings.Repeat("all work and no play\n", 3000))) }

func logEndless() { flood(bytes.Repeat([]byte("x"), 64<<10)) }

func flood(piece []byte) {
	for written := 0; written < logged; written += len(piece) {
		if _, err := os.Stderr.Write(piece); err != nil {
			return
		}
	}
	fmt.Fprintln(os.Stderr)
}

// logTypes writes entries of the log whose fields are not what they should be.
func logTypes() {
	for _, line := range []string{
		`{"@message":5}`, `{"@message":null,"@level":1,"@timestamp":[]}`, `{"@level":"fatal","@message":{}}`,
		`{"@message":"x","@level":"error","@timestamp":7,"":1,"provider":"mock","a b":2}`,
		`{"@message":"` + "\x1b[31m" + `"}`, `{"@message":"forged\n2026-01-01T00:00:00.000Z [ERROR] broker: forged"}`,
		strings.Repeat(`{"a":`, 5000), strings.Repeat("[", 60000), "\x00\x01\xff",
	} {
		fmt.Fprintln(os.Stderr, line)
	}
}

func printGarbage() {
	fmt.Println("1|1|unix|/etc/passwd|grpc|")
	fmt.Println("\x1b]0;title\x07\x00\xff")
	_, _ = os.Stdout.Write(bytes.Repeat([]byte("y"), 1<<20))
	fmt.Println()
}
