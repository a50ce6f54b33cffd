// Package api puts the broker's HTTP server together: the APIs that stand beside each
// other on it. Package rest is what they have in common, and package lending how they use
// instances. Package v1 is the broker's own API, whose JSON types are those of sdk/client.
package api
