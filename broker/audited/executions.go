package audited

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"net"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (p *provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (result sdk.ExecuteResult, err error) {
	rec := p.recorder
	call := func(o *audit.Outcome) (err error) {
		result, err = p.client.Execute(ctx, req, out)
		resulted(o, result)
		return err
	}
	if r := rec.begunFor(req); r != nil {
		r.Fill(func(e *audit.Effect) { e.ContextID = req.ContextID })
		err = rec.finish(ctx, r, req.InstanceID, call)
		return result, err
	}
	e := rec.effect(ctx, OpExecute, req.InstanceID)
	executing(&e, req)
	err = rec.record(ctx, e, call)
	return result, err
}

// executing puts an execution into an effect.
func executing(e *audit.Effect, req sdk.ExecuteRequest) {
	e.ExecutionID, e.ContextID, e.Language, e.EnvNames = req.ExecutionID, req.ContextID, string(req.Language), names(req.Env)
	e.Code, e.CodeHash, e.CodeBytes = req.Code, hashOf(req.Code), int64(len(req.Code))
}

// resulted puts a result into an outcome.
func resulted(o *audit.Outcome, result sdk.ExecuteResult) {
	o.Status, o.Error, o.ExitCode = string(result.Status), result.Status.Code(), &result.ExitCode
	o.MemoryUsedMB = math.Round(float64(result.PeakMemoryBytes)/(1<<20)*1e3) / 1e3
}

func (p *provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	e := p.recorder.effect(ctx, OpInterrupt, instanceID)
	e.ExecutionID = executionID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.Interrupt(ctx, instanceID, executionID) })
}

func (p *provider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (result sdk.ExecuteResult, err error) {
	e := p.recorder.effect(ctx, OpInstall, req.InstanceID)
	e.Language, e.Packages = string(req.Language), packageNames(req.Requirements)
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		result, err = p.client.InstallPackages(ctx, req, out)
		resulted(o, result)
		return err
	})
	return result, err
}

// packageNames are requirements without what may hold a secret: the address that a
// package comes from.
func packageNames(requirements []string) []string {
	short := make([]string, 0, len(requirements))
	for _, r := range requirements {
		short = append(short, packageName.FindString(r))
	}
	return short
}

func (p *provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (made sdk.CodeContext, err error) {
	e := p.recorder.effect(ctx, OpCreateContext, req.InstanceID)
	e.Language, e.Path, e.EnvNames = string(req.Language), req.Cwd, names(req.Env)
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		made, err = p.client.CreateContext(ctx, req)
		o.Made = made.ID
		return err
	})
	return made, err
}

func (p *provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	e := p.recorder.effect(ctx, OpRestartContext, instanceID)
	e.ContextID = contextID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.RestartContext(ctx, instanceID, contextID) })
}

func (p *provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	e := p.recorder.effect(ctx, OpDeleteContext, instanceID)
	e.ContextID = contextID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.DeleteContext(ctx, instanceID, contextID) })
}

// DialPort is recorded as the connection: what is said over it is between the
// client and the program.
func (p *provider) DialPort(ctx context.Context, instanceID string, port uint16) (conn net.Conn, err error) {
	e := p.recorder.effect(ctx, OpConnect, instanceID)
	e.Port = int(port)
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		conn, err = p.client.DialPort(ctx, instanceID, port)
		return err
	})
	if err != nil && conn != nil {
		_ = conn.Close() // nobody gets it
		conn = nil
	}
	return conn, err
}

// names of variables, sorted; never their values.
func names(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
