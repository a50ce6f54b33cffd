package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func Example() {
	broker := client.New("http://127.0.0.1:9385", "demo-token")
	execution, err := broker.Execute(context.Background(), client.ExecuteRequest{Language: "python", Code: "print(6 * 7)"})
	if problem, refused := errors.AsType[*client.Problem](err); refused {
		fmt.Println("refused with", problem.Code, problem.Detail)
	} else if err == nil {
		fmt.Println(execution.Status, execution.Stdout)
	}
}

// answering stands for a broker that answers everything alike.
func answering(status int, mediaType, body string) *client.Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	return client.New(server.URL, "demo-token")
}

func ExampleClient_Execute() {
	broker := answering(200, "application/json", `{"status":"succeeded","stdout":"42\n"}`)
	execution, err := broker.Execute(context.Background(), client.ExecuteRequest{Language: "python", Code: "print(6 * 7)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(execution.Status, " ", execution.Stdout)
	// Output: succeeded 42
}

func ExampleClient_ExecuteEvents() {
	broker := answering(200, "text/event-stream", "event: stdout\ndata: {\"text\":\"42\"}\n\nevent: done\ndata: {\"status\":\"succeeded\"}\n\n")
	events, err := broker.ExecuteEvents(context.Background(), client.ExecuteRequest{Language: "python", Code: "print(6 * 7)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()
	for event, err := range events.All() {
		fmt.Println(event.Name, string(event.Data), err)
	}
	// Output:
	// stdout {"text":"42"} <nil>
	// done {"status":"succeeded"} <nil>
}

func ExampleProblem() {
	broker := answering(429, "application/problem+json", `{"code":"SB008","status":429,"title":"rate limit or quota exceeded","retryable":true}`)
	_, err := broker.CreateInstance(context.Background(), client.CreateInstanceRequest{SessionID: "report"})
	if problem, refused := errors.AsType[*client.Problem](err); refused && problem.Retryable {
		fmt.Println(problem.Code, problem.Title)
	}
	// Output: SB008 rate limit or quota exceeded
}
