// Package attackers sends one broker the requests of attackers: of strangers, of
// tenants, of programs behind ports, of an administrator's token in wrong hands. They
// are grouped by what they try, and each says what must hold.
//
// Hostile code is in e2e/hostile, proxies in front of the broker are in e2e/proxies.
// Who may abuse which route is said in docs/abuse.
package attackers
