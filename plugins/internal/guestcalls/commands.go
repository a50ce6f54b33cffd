package guestcalls

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

var _ sdk.Commands = (*Calls)(nil)

// theOnly is the instance as its guest knows it: the same in a copy, which has another ID to
// the broker.
const theOnly = ""

// StartCommand implements sdk.Commands.
func (c *Calls) StartCommand(ctx context.Context, req sdk.CommandRequest) (command sdk.Command, err error) {
	err = c.askWithin(ctx, AnswerBound, req.InstanceID, func(ctx context.Context, i Instance, guest *wire.Client) error {
		req.InstanceID, req.Env = theOnly, i.Environment(req.Env)
		command, err = guest.StartCommand(ctx, req)
		return err
	})
	return command, err
}

// ListCommands implements sdk.Commands.
func (c *Calls) ListCommands(ctx context.Context, instanceID string) (commands []sdk.Command, err error) {
	err = c.askWithin(ctx, AnswerBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		commands, err = guest.ListCommands(ctx, theOnly)
		return err
	})
	return commands, err
}

// ReadCommand implements sdk.Commands.
func (c *Calls) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (command sdk.Command, err error) {
	err = c.waitFor(ctx, req.InstanceID, func(guest *wire.Client) error {
		req.InstanceID = theOnly
		command, err = guest.ReadCommand(ctx, req, out)
		return err
	})
	return command, err
}

// WriteCommand implements sdk.Commands.
func (c *Calls) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	return c.waitFor(ctx, instanceID, func(guest *wire.Client) error {
		return guest.WriteCommand(ctx, theOnly, commandID, data, end)
	})
}

// ResizeCommand implements sdk.Commands.
func (c *Calls) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	return c.askWithin(ctx, AnswerBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		return guest.ResizeCommand(ctx, theOnly, commandID, size)
	})
}

// SignalCommand implements sdk.Commands.
func (c *Calls) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	return c.askWithin(ctx, AnswerBound, instanceID, func(ctx context.Context, _ Instance, guest *wire.Client) error {
		return guest.SignalCommand(ctx, theOnly, commandID, signal)
	})
}
