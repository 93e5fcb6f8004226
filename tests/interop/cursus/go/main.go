// Drives the published Cursus client for Go from the command line, as tests/interop/cursus/driver.py
// says: one mode, its arguments, and a line on standard output for whatever happens.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cursus-io/cursus/sdk"
)

// partitions of every topic that is written.
const partitions = 2

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return fmt.Errorf("usage: MODE BROKERS TOPIC MORE...")
	}
	brokers, topic, more := strings.Split(args[1], ","), args[2], args[3:]
	switch args[0] {
	case "produce":
		return produce(brokers, topic, more[0], more[1])
	case "consume":
		return consume(brokers, topic, more[0], more[1])
	case "transact":
		return transact(brokers, topic, more[0], more[1])
	}
	return fmt.Errorf("unknown mode %q", args[0])
}

// produce writes COUNT payloads m-0, m-1, ... with ACKS, idempotently, and says how many are acked.
func produce(brokers []string, topic, acks, count string) error {
	total, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	config := sdk.NewDefaultPublisherConfig()
	config.BrokerAddrs, config.Topic, config.Partitions = brokers, topic, partitions
	config.Acks, config.EnableIdempotence = acks, true
	config.BatchSize, config.LingerMS, config.BufferSize = 20, 5, total
	config.MaxRetries, config.LogLevel = 20, sdk.LogLevelError
	producer, err := sdk.NewProducer(config)
	if err != nil {
		return err
	}
	for number := 0; number < total; number++ {
		if _, err := producer.Send(fmt.Sprintf("m-%d", number)); err != nil {
			return err
		}
		if number%20 == 0 {
			fmt.Println("acked", producer.GetUniqueAckCount())
			time.Sleep(10 * time.Millisecond)
		}
	}
	for producer.GetUniqueAckCount() < total {
		fmt.Println("acked", producer.GetUniqueAckCount())
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Println("acked", total)
	return producer.Close()
}

// consume reads as a member of GROUP until standard input ends, and says every payload.
func consume(brokers []string, topic, group, mode string) error {
	config := sdk.NewDefaultConsumerConfig()
	config.BrokerAddrs, config.Topic, config.GroupID = brokers, topic, group
	config.Mode, config.PollInterval = sdk.ConsumerMode(mode), 50*time.Millisecond
	config.LeaderStaleness, config.LogLevel = time.Second, sdk.LogLevelError
	consumer, err := sdk.NewConsumer(config)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		_ = consumer.Close()
	}()
	return consumer.Start(func(message sdk.Message) error {
		_, err := fmt.Printf("got %s\n", message.Payload)
		return err
	})
}

// transact runs COUNT transactions as ID, each of one record in each partition; every
// third is aborted.
func transact(brokers []string, topic, id, count string) error {
	total, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	config := sdk.NewDefaultConsumerConfig()
	config.BrokerAddrs, config.LogLevel = brokers, sdk.LogLevelError
	client, err := sdk.NewConsumerClient(config)
	if err != nil {
		return err
	}
	producer, err := client.NewTransactionalProducer(id)
	if err != nil {
		return err
	}
	session := producer.Session()
	for number := 0; number < total; number++ {
		if number > 0 {
			// The client for Go takes a new epoch for each transaction.
			if session, err = producer.Reinitialize(); err != nil {
				return err
			}
		}
		if err := producer.Begin(); err != nil {
			return err
		}
		for partition := 0; partition < partitions; partition++ {
			message := sdk.Message{
				ProducerID: session.ProducerID,
				Epoch:      session.Epoch,
				SeqNum:     uint64(partition + 1),
				Payload:    fmt.Sprintf("t-%d-%d", number, partition),
			}
			if err := producer.Publish(topic, partition, message); err != nil {
				return err
			}
		}
		end, said := producer.Commit, "committed"
		if number%3 == 2 {
			end, said = producer.Abort, "aborted"
		}
		if err := end(); err != nil {
			return err
		}
		fmt.Println(said, number)
	}
	return nil
}
