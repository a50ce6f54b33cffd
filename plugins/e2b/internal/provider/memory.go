package provider

import (
	"bytes"
	"context"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
)

// memoryKills looks whether the kernel of the sandbox has killed a process for memory
// since the last look: nobody else tells why an interpreter has ended. A look that fails
// shows nothing.
func (sb *sandbox) memoryKills(ctx context.Context) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	counter := stream.Program{Argv: []string{"grep", "-m1", "^oom_kill ", "/proc/vmstat"}}
	text, _, err := sb.script(ctx, counter)
	if err != nil {
		sb.p.logger.Debug("it could not be seen whether memory is short", "sandbox", sb.id, "error", err)
		return false
	}
	_, number, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	kills, err := strconv.ParseInt(string(number), 10, 64)
	return err == nil && sb.noteKills(kills)
}

// noteKills takes down how many processes were killed, and says whether that are more
// than at the last look. At the first one nobody knows.
func (sb *sandbox) noteKills(kills int64) (more bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	more = sb.kills >= 0 && kills > sb.kills
	sb.kills = max(sb.kills, kills)
	return more
}
