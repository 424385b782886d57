//! What an engine was given, compared with the feed.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

/// A message in an engine.
pub struct Delivery {
    pub id: String,
    pub event: Value,
    pub partition: i32,
}

/// What the relay has to make of the feed: message id, type and data.
fn expected(feed: &[Value]) -> Vec<(String, Value, Value)> {
    let mut expected = Vec::new();
    for event in feed {
        let id = event["id"].as_str().expect("an id");
        match event["data"]["orders"].as_array() {
            Some(orders) => expected.extend(
                orders
                    .iter()
                    .enumerate()
                    .map(|(n, order)| (format!("{id}.{n}"), event["type"].clone(), order.clone())),
            ),
            None => expected.push((id.to_owned(), event["type"].clone(), event["data"].clone())),
        }
    }
    expected
}

/// The first delivery of each message; a repeat has to be the same message.
pub fn first_copies(deliveries: &[Delivery]) -> Vec<&Delivery> {
    let mut known: HashMap<&str, &Delivery> = HashMap::new();
    let mut first = Vec::new();
    for delivery in deliveries {
        if let Some(known) = known.get(delivery.id.as_str()) {
            assert_eq!(known.event, delivery.event, "a repeat differs");
            continue;
        }
        known.insert(&delivery.id, delivery);
        first.push(delivery);
    }
    first
}

/// Ids of messages, by order, in the order of their coming.
fn by_order<'a>(
    messages: impl Iterator<Item = (&'a str, &'a Value)>,
) -> BTreeMap<String, Vec<&'a str>> {
    let mut orders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (id, data) in messages {
        if let Some(order) = data["order_id"].as_str() {
            orders.entry(order.to_owned()).or_default().push(id);
        }
    }
    orders
}

/// Each event has arrived as the feed tells it, and nothing else; and each order has its events in the feed's order.
pub fn assert_complete(deliveries: &[Delivery], feed: &[Value]) {
    let (expected, first) = (expected(feed), first_copies(deliveries));
    println!("{} messages for {} of the feed", deliveries.len(), expected.len());
    let arrived: HashMap<&str, Value> =
        first.iter().map(|d| (d.id.as_str(), json!([d.event["type"], d.event["data"]]))).collect();
    for (id, kind, data) in &expected {
        assert_eq!(arrived.get(id.as_str()), Some(&json!([kind, data])), "{id} didn't arrive");
    }
    assert_eq!(arrived.len(), expected.len(), "something arrived that isn't in the feed");
    let arrived = by_order(first.iter().map(|d| (d.id.as_str(), &d.event["data"])));
    assert_eq!(arrived, by_order(expected.iter().map(|(id, _, data)| (id.as_str(), data))));
    let places =
        first.iter().filter_map(|d| Some((d.event["data"]["order_id"].as_str()?, d.partition)));
    let places: HashSet<(&str, i32)> = places.collect();
    assert_eq!(places.len(), arrived.len(), "an order is in two partitions");
}

/// The ids that a consumer keeps which drops repeats and late moves.
pub fn news(deliveries: &[Delivery]) -> Vec<String> {
    let mut moves: HashMap<&str, i64> = HashMap::new();
    let mut news = first_copies(deliveries);
    news.retain(|delivery| {
        let data = &delivery.event["data"];
        let (Some(order), Some(to)) = (data["order_id"].as_str(), data["move"].as_i64()) else {
            return true;
        };
        let known = moves.entry(order).or_default();
        let is_news = to > *known;
        *known = to.max(*known);
        is_news
    });
    news.into_iter().map(|delivery| delivery.id.clone()).collect()
}
