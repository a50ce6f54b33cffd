package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// action is what one call does; doc.go describes the fields.
type action struct {
	Delay      duration `json:"delay"`
	AwaitLease bool     `json:"await_lease"`
	Hang       bool     `json:"hang"`
	HangAfter  bool     `json:"hang_after"`
	Fail       sdk.Code `json:"fail"`
	NoEffect   bool     `json:"no_effect"` // that the failure says
	Message    string   `json:"message"`
	Field      string   `json:"field"`
	RetryAfter duration `json:"retry_after"`
	Panic      bool     `json:"panic"`
	Crash      string   `json:"crash"`
	CrashWith  string   `json:"crash_with"`
	Log        string   `json:"log"`
	LogLines   int      `json:"log_lines"`
	LogRaw     string   `json:"log_raw"`
	Print      string   `json:"print"`
	Grandchild duration `json:"grandchild"`
	Escape     bool     `json:"escape"`
	Lie        string   `json:"lie"`

	Stdout      string          `json:"stdout"`
	Stderr      string          `json:"stderr"`
	StdoutBytes int             `json:"stdout_bytes"`
	StderrBytes int             `json:"stderr_bytes"`
	Lines       int             `json:"lines"`
	PerSecond   int             `json:"lines_per_second"`
	ExitCode    int             `json:"exit_code"`
	Status      sdk.Status      `json:"status"`
	Detail      string          `json:"detail"`
	Findings    []sdk.Finding   `json:"findings"`
	Result      json.RawMessage `json:"result"`
	Echo        bool            `json:"echo"`
	Remember    string          `json:"remember"`
}

type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New(`a duration is a string such as "250ms"`)
	}
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}

func parseAction(text string) (action, error) {
	var act action
	if strings.TrimSpace(text) == "" {
		return act, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&act); err != nil {
		return act, sdk.FieldErrorf(sdk.CodeInvalidRequest, "code", "not an action of the mock provider: %w", err)
	}
	return act, nil
}

// actionOf returns the action that code carries, and whether it carries one.
func actionOf(language sdk.Language, code string) (action, bool, error) {
	text, marked := strings.CutPrefix(strings.TrimSpace(code), "mock:")
	if !marked && language != "mock" {
		return action{}, false, nil
	}
	act, err := parseAction(text)
	return act, true, err
}

// before does what comes before the effect of a call.
func (p *provider) before(ctx context.Context, act action) error {
	if act.Log != "" {
		p.logger.Info(act.Log)
	}
	for i := range act.LogLines {
		sdk.Logger(ctx).Info("mock log line", "number", i)
	}
	if act.LogRaw != "" {
		fmt.Fprint(realStderr, act.LogRaw)
	}
	if act.Print != "" {
		fmt.Fprintln(os.Stdout, act.Print)
		fmt.Fprintln(os.Stderr, act.Print)
	}
	if act.Grandchild > 0 {
		if err := p.startGrandchild(time.Duration(act.Grandchild), act.Escape); err != nil {
			return err
		}
	}
	if act.Hang {
		select {}
	}
	if act.Delay > 0 {
		select {
		case <-time.After(time.Duration(act.Delay)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for act.AwaitLease && sdk.LeaseOf(ctx).Held() != nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if act.Crash == "before" {
		crash(act.CrashWith)
	}
	if act.Panic {
		panic("the mock provider was told to panic")
	}
	if act.Fail != "" {
		message := act.Message
		if message == "" {
			message = "the mock provider was told to fail"
		}
		e := sdk.FieldErrorf(act.Fail, act.Field, "%s", message)
		e.RetryAfter, e.NoEffect = time.Duration(act.RetryAfter), act.NoEffect
		return e
	}
	return nil
}

// after does what comes after the effect of a call.
func (act action) after() {
	if act.Crash == "after" {
		crash(act.CrashWith)
	}
	if act.HangAfter {
		select {}
	}
}

func crash(with string) {
	switch code, isExit := strings.CutPrefix(with, "exit:"); {
	case with == "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case with == "panic":
		go panic("the mock provider was told to crash")
	case isExit:
		n, err := strconv.Atoi(code)
		if err != nil {
			panic(err)
		}
		os.Exit(n)
	default:
		os.Exit(7)
	}
	select {} // until the end comes
}

func (p *provider) startGrandchild(life time.Duration, escape bool) error {
	child := exec.Command("sleep", fmt.Sprint(life.Seconds()))
	child.Stdout, child.Stderr = realStdout, realStderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: escape}
	if err := child.Start(); err != nil {
		return err
	}
	go child.Wait() //nolint:errcheck // only reaped
	return os.WriteFile(filepath.Join(p.stateDir(), "grandchild.pid"), []byte(strconv.Itoa(child.Process.Pid)), 0o600)
}
