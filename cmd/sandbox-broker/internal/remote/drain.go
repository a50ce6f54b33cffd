package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Drain takes a broker out of several, or back.
type Drain struct {
	Undo bool          `help:"Have it take new sessions again." xor:"what"`
	Show bool          `help:"Only say whether it drains, and how many instances it has." xor:"what"`
	Wait time.Duration `help:"Wait until it has no instances any more, at most so long." placeholder:"10m"`
	Connection
}

// Help is shown below the usage.
func (*Drain) Help() string {
	return `It takes an administrator's token, and is about the broker that --url leads to: name
its own address, and not that of a load balancer. New sessions go to other brokers on the
database from then on; those that the broker has go on until they end, and /readyz says
503. With a state in a database it goes on draining after a restart, until --undo.

With --wait the exit code is 1 if it still has instances then.

Examples:
  sandbox-broker drain --url http://10.0.0.5:9385 --wait 30m
  sandbox-broker drain --url http://10.0.0.5:9385 --undo`
}

// waitPause lies between two looks at what the broker still has.
const waitPause = time.Second

// Run drains, and waits where that was asked for.
func (c *Drain) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	var answer client.AdminDrainAnswer
	if c.Show {
		answer, err = broker.Admin().Drain(ctx)
	} else {
		answer, err = broker.Admin().SetDrain(ctx, client.AdminDrainRequest{Draining: !c.Undo})
	}
	if err != nil {
		return err
	}
	if c.Wait > 0 && answer.Data.Draining {
		within, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		stop := startProgress(console, func() string { return "waiting for the end of its instances" })
		answer, err = emptied(within, broker, answer)
		stop()
		if err != nil {
			return err
		}
	}
	says := "not draining"
	if answer.Data.Draining {
		says = "draining"
	}
	if _, err := fmt.Fprintf(console.Out, "%s, %d instances\n", says, answer.Data.Instances); err != nil {
		return err
	}
	if c.Wait > 0 && answer.Data.Draining && answer.Data.Instances > 0 {
		return ExitCode(ExitFailed)
	}
	return nil
}

// emptied looks at a broker until it has no instances any more, or ctx ends.
func emptied(ctx context.Context, broker *client.Client, answer client.AdminDrainAnswer) (client.AdminDrainAnswer, error) {
	ticker := time.NewTicker(waitPause)
	defer ticker.Stop()
	for answer.Data.Draining && answer.Data.Instances > 0 {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return answer, nil
			}
			return answer, ctx.Err()
		case <-ticker.C:
		}
		now, err := broker.Admin().Drain(ctx)
		if err != nil && ctx.Err() == nil {
			return answer, err
		}
		if err == nil {
			answer = now
		}
	}
	return answer, nil
}
