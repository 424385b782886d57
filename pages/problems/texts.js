export default {
  "skip": ["Go to the problems", "跳到问题列表"],
  "title": ["Problems", "问题代码"],
  "about": ["Each refusal or error has a JSON body (RFC 9457), whose code is one of these.", "每个拒绝或错误都有 JSON 响应体（RFC 9457），其中的 code 是以下之一。说明为英文。"],
  "all": ["All operations", "全部接口"],
  "Claims": ["Claims", "抢购"],
  "Orders and payments": ["Orders and payments", "订单与支付"],
  "Coupons": ["Coupons", "优惠券"],
  "Operators": ["Operators", "运维"],
  "Every call": ["Every call", "所有接口"]
}
