// Package packages knows the installers of languages: which requirements they
// take from an agent, and how they are called so that they look nowhere but where
// the operator wants. Who runs them, and how they reach an index, is not its
// business.
package packages
