// Package commands is the guest's side of the capability "commands": programs
// that outlive the call that started them. It keeps the last part of what they
// print, so that nobody has to listen and no program ever waits for a reader.
//
// How a program is kept apart from everything else is package isolation's matter.
package commands
