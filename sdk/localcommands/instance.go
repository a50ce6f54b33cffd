package localcommands

import (
	"context"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// instance has the commands of one, also those that are being started.
type instance struct {
	id string
	// life ends with EndCommands, and all commands with it.
	life context.Context
	end  context.CancelFunc
	// commands in the order of their start. Commands.mu is held for them.
	commands []*command
}

func errEndedInstance() error {
	return sdk.Errorf(sdk.CodeNotFound, "the instance has ended")
}

// reserve takes a place for a command that is about to be started.
func (c *Commands) reserve(instanceID string, starting *command) (*instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.instances[instanceID]
	if in == nil {
		in = &instance{id: instanceID}
		in.life, in.end = context.WithCancel(context.Background())
		c.instances[instanceID] = in
	}
	if in.life.Err() != nil {
		return nil, errEndedInstance()
	}
	running := 0
	for _, other := range in.commands {
		if !other.hasEnded() {
			running++
		}
	}
	if running >= c.options.MaxRunning {
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "%d commands run in this instance, which is the most; wait for one or end one", running)
	}
	in.commands = append(in.commands, starting)
	return in, nil
}

// abandon gives the place of a command back that was not started.
func (c *Commands) abandon(in *instance, starting *command) {
	starting.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	in.commands = slices.DeleteFunc(in.commands, func(other *command) bool { return other == starting })
	if len(in.commands) == 0 {
		c.drop(in)
	}
	close(starting.done)
}

// drop forgets an instance. The lock is held.
func (c *Commands) drop(in *instance) {
	in.end()
	if c.instances[in.id] == in {
		delete(c.instances, in.id)
	}
}

// known returns the commands of an instance that were started.
func (c *Commands) known(instanceID string) []*command {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known []*command
	if in := c.instances[instanceID]; in != nil {
		for _, one := range in.commands {
			if one.hasBegun() {
				known = append(known, one)
			}
		}
	}
	return known
}

// forget makes room among the commands of an instance that have ended: commands first,
// then the output of old ones, but never that of the last.
func (c *Commands) forget(in *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended, output := 0, 0
	for i, one := range slices.Backward(in.commands) {
		if !one.hasEnded() {
			continue
		}
		if ended++; ended > maxEnded {
			in.commands = slices.Delete(in.commands, i, i+1)
			continue
		}
		if output += one.held(); output > maxEndedOutput && ended > 1 {
			one.forgetOutput()
		}
	}
}

// EndCommands ends all commands of an instance and returns when nothing of them is left,
// or with the error of ctx; they end all the same. Readers that follow them are told of
// their end. No others are started meanwhile, and afterwards none as long as
// Options.Check does not know the instance.
func (c *Commands) EndCommands(ctx context.Context, instanceID string) error {
	return c.endAll(ctx, func(id string) bool { return id == instanceID })
}

// EndAllCommands is EndCommands for all instances.
func (c *Commands) EndAllCommands(ctx context.Context) error {
	return c.endAll(ctx, func(string) bool { return true })
}

func (c *Commands) endAll(ctx context.Context, meant func(instanceID string) bool) error {
	var ending []*instance
	var commands []*command
	c.mu.Lock()
	for id, in := range c.instances {
		if meant(id) {
			in.end()
			ending, commands = append(ending, in), append(commands, in.commands...)
		}
	}
	c.mu.Unlock()
	for _, one := range commands {
		select {
		case <-one.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range ending {
		c.drop(in)
	}
	return nil
}
