// Package program turns an execution into something that a remote interpreter can
// run, for providers whose service takes source text and gives back output.
//
// ForProcess makes a program for `python3 FILE`, `node FILE` or `bash FILE`. The code
// finds what package sdk promises: main is called with the arguments, the environment has the variables of
// the execution, exceptions show the lines of the code alone, and what main returns
// is the result. Nothing of the execution is ever pasted into source as it is.
//
// The result travels in frames among the output. Each begins with a marker, 128
// random bits made for this execution alone, so that nothing that is merely printed
// can be taken for a result. An Output stands between the service and the broker,
// takes the frames out and leaves every other byte as it is:
//
//	p, err := program.ForProcess(req, program.Options{Dir: "/workspace"})
//	...                                   // store p.Source in a file, run p.Command(file)
//	output := p.Output(out)               // the service's stdout and stderr go here
//	result, err := output.Finish(exitCode)
//
// The marker is in the program, and code that searches its own process for it can
// find it: all that it gains is to return another value than its main did.
//
// What the provider has to do around it stands in docs/remote-providers.md.
package program
