// Package placement decides which of several brokers makes the sandbox of a new session: one
// that has a warm sandbox and room, does not drain, and is near.
//
// Start with Choose, which is the rule and nothing else. Placer asks it with what the brokers
// have published of themselves (Load), and with what it has given to each since then: what is
// published may be a few seconds old.
package placement
