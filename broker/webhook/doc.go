// Package webhook posts reports to where tenants want them: signed, as the Standard
// Webhooks specification (https://www.standardwebhooks.com) has it, again and again within
// a bound until they are taken, also by the next process of the broker.
//
// Start with Deliverer. Where a tenant may have reports posted to is what its Rules allow,
// looked at when one is asked for, before each attempt, and once more at the address that
// a name has led to. What a report says is the business of who adds it.
package webhook
