package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cutShorter says why code had less time than it was to have.
const cutShorter = "the time limit of this provider is shorter than the one asked for"

// Execute implements sdk.Provider. The service gives output only when a command has
// ended, so that the code runs beside the commands that watch it: see package place.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	if req.ContextID != "" {
		return p.executeInContext(ctx, box, req, out)
	}
	running, end := p.Begin(req)
	defer end()
	run := place.Execution{
		Service: service{p}, Logger: p.log, Box: box.Box, Request: req, Running: running, Files: p.finder(box), Limit: p.limit(req), Cut: cutShorter,
	}
	return run.Do(ctx, out)
}

// limit is what the provider gives an execution.
func (p *Provider) limit(req sdk.ExecuteRequest) time.Duration {
	return min(req.Timeout, time.Duration(p.settings.Timeout)*time.Second, maxTimeout)
}

// finder finds what an execution has made.
func (p *Provider) finder(box sandbox) artifacts.Finder {
	return artifacts.Finder{Store: p.store(), Instance: box.ID, Most: maxListed}
}
