package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/creack/pty"
)

// A person needs that long for a key, and looks that long at what has come.
const (
	perKey    = 45 * time.Millisecond
	perAnswer = 1200 * time.Millisecond
)

// stage is a terminal with a shell that is recorded. Its clock is the real one, and keys and
// looks take time on it without anybody waiting.
type stage struct {
	ctx      context.Context
	terminal *os.File
	shell    *exec.Cmd
	output   chan []byte // what the terminal shows, as it comes; closed at its end
	began    time.Time
	extra    time.Duration // that the clock of the recording is ahead
	events   []event
}

// event is something that was shown at a time of the recording.
type event struct {
	at   time.Duration
	text string
}

func openStage(ctx context.Context, bin, dir string) (*stage, error) {
	rc := filepath.Join(dir, "rc")
	text := "PS1='" + prompt + "'\nbind 'set enable-bracketed-paste off' 'set bell-style none'\nsource <(sandbox-broker completion bash)\n"
	if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := &stage{ctx: ctx, output: make(chan []byte), began: time.Now()}
	s.shell = exec.CommandContext(ctx, "bash", "--rcfile", rc, "-i")
	s.shell.Dir = dir
	s.shell.Env = []string{"HOME=" + dir, "PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=xterm-256color"}
	var err error
	if s.terminal, err = pty.StartWithSize(s.shell, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		return nil, err
	}
	go s.read()
	return s, s.await(prompt)
}

// read passes on what the terminal shows until it is closed.
func (s *stage) read() {
	defer close(s.output)
	for {
		part := make([]byte, 8192)
		n, err := s.terminal.Read(part)
		if n > 0 {
			select {
			case s.output <- part[:n]:
			case <-s.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// line types a command and waits for the prompt behind what it prints.
func (s *stage) line(command string) error { return s.types(command+"\r", prompt) }

// types types keys one by one, as a person does, and waits for what comes of the last one.
func (s *stage) types(keys, shows string) error {
	for i, key := range keys {
		s.extra += perKey
		if _, err := s.terminal.WriteString(string(key)); err != nil {
			return err
		}
		if i == len(keys)-1 {
			break
		}
		if err := s.echo(key); err != nil {
			return err
		}
	}
	if err := s.await(shows); err != nil {
		return err
	}
	s.extra += perAnswer
	return nil
}

// echo waits until the shell shows a key. The key that completes shows something else.
func (s *stage) echo(key rune) error {
	if key == '\t' {
		return s.await(" ")
	}
	return s.await(string(key))
}

// await waits until a text was shown.
func (s *stage) await(text string) error {
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), text) {
		select {
		case part, ok := <-s.output:
			if !ok {
				return fmt.Errorf("the shell ended before it showed %q", text)
			}
			seen.Write(part)
			s.events = append(s.events, event{time.Since(s.began) + s.extra, string(part)})
		case <-s.ctx.Done():
			return fmt.Errorf("%q was never shown, but %q: %w", text, seen.String(), s.ctx.Err())
		}
	}
	return nil
}

// shown is all that was shown so far.
func (s *stage) shown() string {
	var b strings.Builder
	for _, e := range s.events {
		b.WriteString(e.text)
	}
	return b.String()
}

// cast is the recording in version 2 of asciinema's form.
func (s *stage) cast() []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string]any{ // it can be encoded
		"version": 2, "width": columns, "height": rows, "title": "sandbox-broker", "env": map[string]string{"TERM": "xterm-256color", "SHELL": "/bin/bash"},
	})
	for _, e := range s.events {
		_ = encoder.Encode([]any{json.Number(strconv.FormatFloat(e.at.Seconds(), 'f', 3, 64)), "o", e.text})
	}
	return b.Bytes()
}

func (s *stage) close() error {
	_ = s.shell.Process.Kill()
	_ = s.shell.Wait() // it was killed
	err := s.terminal.Close()
	for range s.output { // until the reader has ended
	}
	return err
}
