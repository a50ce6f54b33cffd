// Package guestv1 is the generated code of what the self-managed provider asks of its guest
// beside the provider's own contract: how a sandbox is prepared and checked, interrupts
// with a grace, and installations with their way out. The contract itself is package
// providerv1.
package guestv1
