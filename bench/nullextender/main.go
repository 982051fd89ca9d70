// An extender that decides nothing: filter leaves the next node in turn, bind posts the Binding.
//
// It is the ceiling for extenders of the same verbs: what a pod costs when judging it costs nothing.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync/atomic"
)

type extenderArgs struct {
	NodeNames []string
}

type filterReply struct {
	NodeNames []string
	Error     string
}

type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

type bindingReply struct {
	Error string
}

type binder struct {
	server string
	client *http.Client
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: nullextender ADDRESS SERVER AUTHORITY CERTIFICATE KEY")
	}
	client, err := newClient(os.Args[3], os.Args[4], os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	api := binder{os.Args[2], client}
	var turn atomic.Uint64
	http.HandleFunc("/leadz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	http.HandleFunc("/place", func(w http.ResponseWriter, r *http.Request) {
		var args extenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil || len(args.NodeNames) == 0 {
			answer(w, filterReply{Error: fmt.Sprint("no node names: ", err)})
			return
		}
		at := turn.Add(1) % uint64(len(args.NodeNames))
		answer(w, filterReply{NodeNames: args.NodeNames[at : at+1]})
	})
	http.HandleFunc("/bind", func(w http.ResponseWriter, r *http.Request) {
		var args bindingArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			answer(w, bindingReply{err.Error()})
			return
		}
		answer(w, bindingReply{api.bind(args)})
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}

func newClient(authority, certificate, key string) (*http.Client, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}, nil
}

// bind returns why the pod was not bound, or nothing.
func (b binder) bind(args bindingArgs) string {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]string{"name": args.PodName, "namespace": args.PodNamespace, "uid": args.PodUID},
		"target":     map[string]string{"apiVersion": "v1", "kind": "Node", "name": args.Node},
	})
	if err != nil {
		return err.Error()
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", b.server, args.PodNamespace, args.PodName)
	response, err := b.client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated {
		return fmt.Sprintf("%s: %s %v", response.Status, text, err)
	}
	return ""
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}
