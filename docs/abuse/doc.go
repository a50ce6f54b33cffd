// Package abuse says of every route, setting and header of the broker who may abuse it,
// what for, what stops that, and which test shows it. Its tests fail for one that has
// no line here, so whoever adds one has asked.
//
// The lines become docs/abuse.md. What is done about hostile code, which needs no route,
// is in e2e/hostile.
package abuse
