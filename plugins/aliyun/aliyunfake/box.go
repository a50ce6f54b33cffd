package aliyunfake

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"time"
)

var (
	//go:embed inside.py
	inside string
	//go:embed kernel.py
	pythonKernel string
	//go:embed kernel.js
	javaScriptKernel string
)

// box is where the code of one sandbox runs: processes, files and /proc of its own.
type box struct {
	id, template string
	status       string
	created      time.Time
	// used is when somebody asked for something inside last.
	used time.Time
	idle time.Duration
	gets int
	// number counts from 0. One in four is not healthy at once.
	number int

	command *exec.Cmd // nil where nothing runs
	stdin   io.WriteCloser
	ended   chan struct{}

	mu      sync.Mutex
	n       int
	waiting map[int]chan json.RawMessage
}

var (
	errEnded = errors.New("the sandbox has ended")
	errEmpty = errors.New("nothing runs in this sandbox")
)

func (b *box) start(options Options) error {
	about, err := json.Marshal(map[string]bool{"user": options.User, "sudo": options.Sudo, "notebook": options.Notebook})
	if err != nil {
		return err
	}
	who := []string{"--unshare-all"}
	if options.User {
		who = append(who, "--unshare-user", "--uid", "1000", "--gid", "1000")
	}
	b.command = exec.Command("bwrap", append(who, "--die-with-parent", "--new-session", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--dir", "/tmp", "--dir", "/home/user", "--chdir", "/home/user",
		"--setenv", "PATH", "/fake/bin:/usr/bin:/bin", "--setenv", "HOME", "/home/user", "--setenv", "LANG", "C.UTF-8",
		"/usr/bin/python3", "-I", "-S", "-u", "-c", inside, pythonKernel, javaScriptKernel, string(about))...)
	stdout, err := b.command.StdoutPipe()
	if err != nil {
		return err
	}
	if b.stdin, err = b.command.StdinPipe(); err != nil {
		return err
	}
	if err := b.command.Start(); err != nil {
		return err
	}
	ready := make(chan json.RawMessage, 1)
	b.ended, b.waiting = make(chan struct{}), map[int]chan json.RawMessage{0: ready}
	go b.read(stdout)
	select {
	case <-ready: // a bwrap that is killed earlier leaves its children behind
		return nil
	case <-b.ended:
		return errEnded
	}
}

// read passes on answers until the end; stop waits for it.
func (b *box) read(stdout io.Reader) {
	defer close(b.ended)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			_ = b.command.Wait() // it was killed
			return
		}
		var answer struct {
			N      int             `json:"n"`
			Answer json.RawMessage `json:"answer"`
		}
		if json.Unmarshal(line, &answer) != nil {
			continue
		}
		b.mu.Lock()
		waiting := b.waiting[answer.N]
		delete(b.waiting, answer.N)
		b.mu.Unlock()
		if waiting != nil {
			waiting <- answer.Answer
		}
	}
}

func (b *box) stop() {
	if b.command == nil {
		return
	}
	b.stdin.Close()
	_ = b.command.Process.Kill() // it may have ended
	<-b.ended
}

// ask has the inside do something.
func (b *box) ask(request map[string]any) (json.RawMessage, error) {
	if b.command == nil {
		return nil, errEmpty
	}
	answer := make(chan json.RawMessage, 1)
	b.mu.Lock()
	b.n++
	request["n"] = b.n
	b.waiting[b.n] = answer
	text, err := json.Marshal(request)
	if err == nil {
		_, err = b.stdin.Write(append(text, '\n'))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-b.ended:
		return nil, errEnded
	}
}
