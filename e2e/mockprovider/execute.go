package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (p *provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (result sdk.ExecuteResult, err error) {
	instance, err := p.instances().get(req.InstanceID)
	if err != nil {
		return result, err
	}
	act, steered, err := actionOf(req.Language, req.Code)
	if err != nil {
		return result, err
	}
	if !steered {
		act = action{Stdout: req.Code}
	}
	started := time.Now()
	ctx, end := p.executions.begin(ctx, req)
	defer end()
	timed, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	err = p.call(timed, "execute", func() error { return p.before(timed, act) })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, Duration: time.Since(started), Detail: "the mock provider took longer than the timeout"}, nil
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: 130, Duration: time.Since(started), Detail: "the mock provider was interrupted"}, act.write(out)
	}
	if err != nil {
		return result, err
	}
	if err := act.write(out); err != nil {
		return result, err
	}
	if err := act.writeLines(timed, out); err != nil {
		return result, err
	}
	if err := p.bird().fail("execute"); err != nil {
		return result, err
	}
	if act.Remember != "" {
		if err := p.instances().remember(req.InstanceID, act.Remember); err != nil {
			return result, err
		}
		instance.Memory = act.Remember
	}
	result = act.result(started)
	p.bird().result(&result)
	if act.Echo {
		if result.Result, err = json.Marshal(p.received(ctx, req, instance)); err != nil {
			return result, err
		}
	}
	act.after()
	return result, nil
}

func (act action) write(out sdk.Output) error {
	if err := out.Stdout(append([]byte(act.Stdout), bytes.Repeat([]byte("x"), act.StdoutBytes)...)); err != nil {
		return err
	}
	return out.Stderr(append([]byte(act.Stderr), bytes.Repeat([]byte("x"), act.StderrBytes)...))
}

func (act action) result(started time.Time) sdk.ExecuteResult {
	result := sdk.ExecuteResult{
		Status:          act.Status,
		ExitCode:        act.ExitCode,
		Result:          act.Result,
		Duration:        time.Since(started),
		PeakMemoryBytes: 1 << 20,
		Detail:          act.Detail,
		Findings:        act.Findings,
	}
	if result.Status == "" {
		result.Status = sdk.StatusSucceeded
		if act.ExitCode != 0 {
			result.Status = sdk.StatusFailed
		}
	}
	if act.Lie == "bad_json" {
		result.Result = json.RawMessage(`{"half":`)
	}
	return result
}

// logins is what an echo tells of the blocks with secrets, without these.
func logins(blocks []sdk.Settings) []map[string]any {
	var all []map[string]any
	for _, block := range blocks {
		password, _ := block["password"].(string)
		all = append(all, map[string]any{
			"name": block["name"], "rate": block.Block("limit")["rate"],
			"password_sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(password))),
		})
	}
	return all
}

// received is what an echo tells.
func (p *provider) received(ctx context.Context, req sdk.ExecuteRequest, instance stored) map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[string]any{
		"instance_id":  req.InstanceID,
		"execution_id": req.ExecutionID,
		"language":     req.Language,
		"trace_parent": sdk.TraceParent(ctx),
		"arguments":    req.Arguments,
		"env":          req.Env,
		"instance_env": instance.Env,
		"labels":       instance.Instance.Labels,
		"template":     instance.Instance.Template,
		"timeout":      req.Timeout.Seconds(),
		"output_limit": req.OutputLimit,
		"pid":          os.Getpid(),
		"label":        p.config.Label,
		"broker_id":    p.config.BrokerID,
		"mark":         p.config.Settings["mark"],
		"logins":       logins(p.config.Settings.Blocks("login")),
		"environment":  os.Environ(),
		"memory":       instance.Memory,
	}
}
