package e2bfake

import "github.com/sandbox-broker/sandbox-broker/plugins/internal/fault"

// Fault is a lie, of the API or of what is in sandboxes.
type Fault = fault.Fault

// Bytes is for Fault.CutAt.
func Bytes(n int) *int { return &n }
