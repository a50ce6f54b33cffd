package providertest

import "github.com/sandbox-broker/sandbox-broker/sdk"

// Samples are the pieces of code in one language that the cases run. Each does
// what its field says and nothing more, in the directory in which code starts.
// Cases whose sample is empty are skipped.
type Samples struct {
	// Hello prints "hello" and a line feed.
	Hello string
	// Streams prints "out" to stdout and "err" to stderr, each with a line feed.
	Streams string
	// NoLineFeed prints "end" and nothing behind it.
	NoLineFeed string
	// Silent does nothing.
	Silent string
	// ExitThree prints "before" and a line feed and ends with exit code 3.
	ExitThree string
	// Crash fails in the language's own way: an exception, an unknown command.
	Crash string
	// Broken is no code of the language.
	Broken string
	// Killed ends itself with SIGKILL.
	Killed string
	// Unicode prints UnicodeText, which stands in the code as it is, and a line
	// feed.
	Unicode string
	// Binary prints the 256 values of a byte, in order.
	Binary string
	// Lines prints "line 1" to "line 5000", a line each.
	Lines string
	// Flood prints 2500000 times "x" to stdout and as many "y" to stderr, then
	// writes the file flooded.
	Flood string
	// Input prints how many bytes there are on standard input, and a line feed.
	Input string
	// Value prints the environment variable PROVIDERTEST, or "absent".
	Value string
	// Environment prints all environment variables, a line each.
	Environment string
	// Variables prints the environment variables whose names begin with
	// PROVIDERTEST_, each as NAME=value and the byte 30 behind it.
	Variables string
	// Where prints the directory in which it runs.
	Where string
	// Write writes "kept" to the file providertest.txt; Read prints what is in
	// it, or "absent".
	Write, Read string
	// WriteTree writes the files a.md, b.txt, tree/b.txt, tree/a.md and
	// tree/deep/b.txt, each with its own name in it.
	WriteTree string
	// WriteTmp and ReadTmp do so with /tmp/providertest.txt.
	WriteTmp, ReadTmp string
	// Workspace writes /workspace/absolute.txt and prints "same" if the name
	// absolute.txt is that of the same file.
	Workspace string
	// SetVariable sets a global variable. GetVariable prints it, or "absent".
	SetVariable, GetVariable string
	// Wait prints "ready" and a line feed, and waits for ten minutes.
	Wait string
	// WaitInContext is Wait for a context, where what was only scheduled may not
	// count as running.
	WaitInContext string
	// StubbornInContext prints "ready" and runs for ever, in a context, whatever
	// asks it to stop.
	StubbornInContext string
	// Leave ends the interpreter with exit code 3, at once and in a way of which a
	// context learns nothing: no exception, no handler.
	Leave string
	// Declaration declares something, and does nothing else.
	Declaration string
	// Stubborn does the same and ignores SIGTERM and SIGINT.
	Stubborn string
	// Spin prints "ready" and uses a CPU for ever.
	Spin string
	// Tick starts a process that writes the time, in milliseconds, to the file
	// ticks every 50 ms for ever, waits for the file, and ends. The process holds
	// none of the standard streams.
	Tick string
	// TickAndWait does the same, then prints "ready" and waits like Wait.
	TickAndWait string
	// EscapeAndWait does the same with a process in a session of its own.
	EscapeAndWait string
	// Now prints the time, LastTick the time and what is in the file ticks, with
	// a blank between; in milliseconds.
	Now, LastTick string
	// Serve answers one TCP connection at a time on a free port of the loopback:
	// it sends back what it gets. When it listens it prints the port and a line
	// feed.
	Serve string
	// Memory uses more and more memory, without end.
	Memory string
	// Figure leaves the file artifacts/figure.txt with "drawn" in it. FigureAtOnce does
	// too, and does not make the directory.
	Figure, FigureAtOnce string
	// RemoveArtifacts removes the directory artifacts, if it is there. ReplaceArtifacts
	// leaves a file of that name with "kept" in it.
	RemoveArtifacts, ReplaceArtifacts string

	// Value42 is an expression whose value is 42, as the last thing of the code.
	Value42 string

	Main Mains
}

// Mains are samples about the arguments contract. A language without main has
// none of them.
type Mains struct {
	// Sum has a main with the arguments a and b that prints "working" and a line
	// feed, and returns an object whose key sum is their sum.
	Sum string
	// Async is Sum, asynchronous.
	Async string
	// Echo returns its argument value.
	Echo string
	// Alone has a main without parameters that nobody calls; it returns "called".
	Alone string
	// Called has such a main that prints "once", and calls it.
	Called string
	// Guarded has such a main, and calls it in the language's way of a program
	// that is run and not imported.
	Guarded string
	// Nothing returns nothing.
	Nothing string
	// Prints is a main that prints a JSON object and returns another: the one with
	// {"forged":true}, the other with {"forged":false}.
	Prints string
	// None has no main, and succeeds as a script.
	None string
	// Other has a main that does not take the argument a.
	Other string
	// Raises fails with an exception.
	Raises string
	// NotJSON returns what JSON has no form for.
	NotJSON string
	// Exits ends the process with exit code 4.
	Exits string
	// Exported are Sum in ways to export it, and it alone: no name at the top level is
	// main. ExportedByModule are modules of ES. None of them prints anything.
	Exported, ExportedByModule [4]string
	// ExportedBeside is Sum with a top-level main, and exports another one.
	ExportedBeside string
}

// UnicodeText is what Samples.Unicode prints: letters of two, three and four
// bytes.
const UnicodeText = "Grüße, 世界 🎈 \\n \"'`$HOME"

func builtinSamples() map[sdk.Language]Samples {
	return map[sdk.Language]Samples{
		sdk.Python: pythonSamples(), sdk.JavaScript: javascriptSamples(), sdk.Bash: bashSamples(),
	}
}
