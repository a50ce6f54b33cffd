// Package api puts the broker's HTTP server together: the APIs that stand beside each
// other on it. Package rest is what they have in common, package v1 the broker's own
// API, whose JSON types are those of sdk/client.
package api
