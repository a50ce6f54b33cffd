package main

import (
	"os"
	"syscall"
)

// anyCall are deaths and silences, whatever the call.
func anyCall() map[string]func(*call) {
	return map[string]func(*call){
		"hang": func(*call) { select {} },
		"late": func(c *call) { // answers when nobody wants it any more
			<-c.r.Context().Done()
			c.well()
		},
		"exit":   func(*call) { os.Exit(3) },
		"killed": func(*call) { signal(syscall.SIGKILL) },
		"panic": func(*call) {
			go panic("told to panic\x1b[31m in red")
			select {}
		},
		"stopped": func(*call) { signal(syscall.SIGSTOP) },
		"heir": func(*call) { // dies, and leaves a child that holds all that it held
			leave(false, true)
			signal(syscall.SIGKILL)
		},
		"orphan": func(c *call) { // leaves a child outside of its process group
			leave(true, false)
			c.well()
		},
		"log_lines":   func(c *call) { go logLines(); c.well() },
		"log_endless": func(c *call) { go logEndless(); c.well() },
		"log_types":   func(c *call) { logTypes(); c.well() },
		"print":       func(c *call) { printGarbage(); c.well() },
	}
}

func signal(s syscall.Signal) {
	_ = syscall.Kill(os.Getpid(), s)
	select {}
}
