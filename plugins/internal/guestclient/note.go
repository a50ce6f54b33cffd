package guestclient

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Remember has the guest keep the environment of the instance that its sandbox is: the next
// process of the plugin has it from there, and nobody else. Where nobody connects to the guest
// any more the sandbox lasts until then, and for ever if until is zero.
func (c *Client) Remember(ctx context.Context, env map[string]string, until time.Time) error {
	asBytes := make(map[string][]byte, len(env)) // a value need not be UTF-8
	for name, value := range env {
		asBytes[name] = []byte(value)
	}
	note, err := json.Marshal(asBytes)
	if err != nil {
		return fmt.Errorf("write the environment down: %w", err)
	}
	req := &guestv1.RememberRequest{Note: note}
	if !until.IsZero() {
		req.Until = timestamppb.New(until)
	}
	_, err = c.rpc.Remember(ctx, req)
	return c.explain(ctx, ctx, wire.DecodeError(err))
}

// Recalled is what a guest knows of its sandbox.
type Recalled struct {
	// Env is what Remember was given last; nil if that never was.
	Env map[string]string
	// Interpreters are paths in the sandbox, by language, and NPM is one too, as the answer to
	// Prepare had them.
	Interpreters map[string]string
	NPM          string
}

// Recall returns what the guest was told, and has found.
func (c *Client) Recall(ctx context.Context) (Recalled, error) {
	told, err := c.rpc.Recall(ctx, &guestv1.RecallRequest{})
	if err != nil {
		return Recalled{}, c.explain(ctx, ctx, wire.DecodeError(err))
	}
	known := Recalled{Interpreters: told.GetInterpreters(), NPM: told.GetNpm()}
	if len(told.GetNote()) == 0 {
		return known, nil
	}
	var asBytes map[string][]byte
	if err := json.Unmarshal(told.GetNote(), &asBytes); err != nil {
		return Recalled{}, fmt.Errorf("read the environment: %w", err)
	}
	known.Env = make(map[string]string, len(asBytes))
	for name, value := range asBytes {
		known.Env[name] = string(value)
	}
	return known, nil
}
