package agent

import "github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"

// The bodies that the code interpreter takes. What may be absent may be null too.
var (
	newContext = shape.Object{Optional: map[string]shape.Shape{
		"language": shape.Nullable{Shape: shape.Text{}}, "cwd": shape.Nullable{Shape: shape.Text{}},
	}}
	newExecution = shape.Object{
		Needed: map[string]shape.Shape{"code": shape.Text{}},
		Optional: map[string]shape.Shape{
			"context_id": shape.Nullable{Shape: shape.Text{}}, "language": shape.Nullable{Shape: shape.Text{}}, "env_vars": shape.Lacking{},
		},
	}
)
