package provider

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ReadCommand implements sdk.Commands. Who follows a command of an instance that leaves its
// sandbox goes on behind what it has, when the instance is in another one.
func (p *Provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	for left := false; ; left = true {
		command, err := p.Calls.ReadCommand(ctx, req, func(o sdk.CommandOutput) error {
			end := o.Offset + int64(len(o.Data))
			if o.Stream == sdk.Stdout {
				req.StdoutOffset = max(req.StdoutOffset, end)
			} else {
				req.StderrOffset = max(req.StderrOffset, end)
			}
			return out(o)
		})
		e, coded := errors.AsType[*sdk.Error](err)
		if !coded || e != errLeft && (!left || e != errPaused && e != errPausing) {
			return command, err
		}
		if err := p.instances.awaitAwake(ctx, req.InstanceID); err != nil {
			return sdk.Command{}, err
		}
	}
}

// awaitAwake waits until an instance is not paused.
func (all *instances) awaitAwake(ctx context.Context, instanceID string) error {
	i, err := all.find(instanceID)
	if err != nil {
		return err
	}
	select {
	case <-i.awake():
		return nil
	case <-i.gone:
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	case <-ctx.Done():
		return ctx.Err()
	}
}
