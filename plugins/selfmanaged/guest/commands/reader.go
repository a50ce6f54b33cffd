package commands

import "github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"

// maxChunk is the most bytes of output in one message.
const maxChunk = 32 << 10

// reader passes on the output of a command from some place on.
type reader struct {
	command *command
	follow  bool
	at      [2]int64 // the next byte of each stream
	until   [2]int64 // where to end, without follow, while the command runs
}

func (c *command) reader(stdoutOffset, stderrOffset int64, follow bool) *reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &reader{
		command: c, follow: follow,
		at:    [2]int64{max(stdoutOffset, 0), max(stderrOffset, 0)},
		until: [2]int64{c.output[stdout].Total(), c.output[stderr].Total()},
	}
}

// next returns the next pieces of output, at most one of each stream. If there
// are none now, changed is closed when there may be, or no more come: then the
// command is told as it was when that was found, so that one that has ended is told
// with all of its output.
func (r *reader) next() (pieces []*providerv1.CommandOutput, changed <-chan struct{}, told *providerv1.Command) {
	c := r.command
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.output {
		until := c.output[i].Total()
		if !r.follow && c.state == stateRunning {
			until = r.until[i]
		}
		if r.at[i] >= until {
			continue
		}
		offset, data := c.output[i].Read(r.at[i], min(until-r.at[i], maxChunk))
		r.at[i] = offset + int64(len(data))
		if len(data) > 0 {
			pieces = append(pieces, &providerv1.CommandOutput{Stream: streamNames[i], Offset: offset, Data: data})
		}
	}
	switch {
	case len(pieces) > 0:
		return pieces, nil, nil
	case !r.follow || c.state != stateRunning:
		return nil, nil, c.describe()
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return nil, c.changed, nil
}
