package guestclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Remember has the guest keep the environment of the instance that its sandbox is: the next
// process of the plugin has it from there, and nobody else.
func (c *Client) Remember(ctx context.Context, env map[string]string) error {
	asBytes := make(map[string][]byte, len(env)) // a value need not be UTF-8
	for name, value := range env {
		asBytes[name] = []byte(value)
	}
	note, err := json.Marshal(asBytes)
	if err != nil {
		return fmt.Errorf("write the environment down: %w", err)
	}
	_, err = c.rpc.Remember(ctx, &guestv1.RememberRequest{Note: note})
	return c.explain(ctx, ctx, wire.DecodeError(err))
}

// Recall returns what Remember was given last; nil if that never was.
func (c *Client) Recall(ctx context.Context) (map[string]string, error) {
	told, err := c.rpc.Recall(ctx, &guestv1.RecallRequest{})
	if err != nil {
		return nil, c.explain(ctx, ctx, wire.DecodeError(err))
	}
	if len(told.GetNote()) == 0 {
		return nil, nil
	}
	var asBytes map[string][]byte
	if err := json.Unmarshal(told.GetNote(), &asBytes); err != nil {
		return nil, fmt.Errorf("read the environment: %w", err)
	}
	env := make(map[string]string, len(asBytes))
	for name, value := range asBytes {
		env[name] = string(value)
	}
	return env, nil
}
