// Package quota decides how much of the broker each tenant may use, and counts it:
// instances, executions at a time and in a day, their time, requests a second, and
// money.
//
// Start with Keeper. Admit takes all that a request needs in one decision, or
// refuses with a Refusal (SB008); what it grants is given back, or settled at what
// was really used, when the Grant's parts are released. Who may wait stands in a
// queue that is fair between tenants (queue.go), also for a provider that is full
// (gate.go). The counts of a day and of a month that are limited are durable before
// what they count may happen, so that the limits hold across a crash: when they are
// granted (journal.go), or with the effect's line of the audit log (noted.go).
//
// Not here: who a tenant is (package tenant), and the instances and executions
// themselves (package instance, which calls this one).
package quota
